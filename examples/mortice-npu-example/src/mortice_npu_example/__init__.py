"""The device ``npu``: an accelerator in a process of its own."""
