"""From fused kernels to loop IR and machine code."""
