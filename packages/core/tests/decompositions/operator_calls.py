"""Calls of operators: what kernels and decompositions are compared on."""

import math

import mortice
from mortice import float16, float64, int64, randn, tensor

inf, nan = math.inf, math.nan


def x(*shape):
    return randn(*shape or (3, 4))


def wild():
    """Values at which formulas differ."""
    return tensor(
        [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 20.5, inf, -inf, nan, 1e20, -1e20]
    )


def ints(*shape, high=4):
    return mortice.randint(0, high, shape)


def grads(f):
    """The same gradient beside tame and wild values."""
    return [f(x(3, 4), x(3, 4)), f(mortice.ones(15), wild())]


def unary(*args):
    return [
        (x(), *args),
        (wild(), *args),
        (x(2, 3, 2).transpose(0, 2), *args),
        (x().to(float16), *args),
    ]


PROBABILITIES = mortice.linspace(0, 1, 9)
BOOLS = tensor([[True, False], [False, True]])
IMAGE = (2, 3, 5, 6)
CLASSES = (5, 4)


def resized(n, *rest):
    image = x(2, 3, *(4, 5, 6)[:n])
    return [
        (image, (7, 3, 8)[:n], *rest),
        (image, (2, 9, 6)[:n], *rest),
        (image.double(), (4, 5, 1)[:n], *rest),
    ]


def samples():
    """Operator -> argument tuples (a dict at the end holds keywords)."""
    log = mortice.log_softmax(x(*CLASSES), 1)
    target = tensor([0, 3, 1, 2, 3])
    weight = mortice.rand(4)
    layer = x(2, 5, 4)
    stats = [layer.mean(-1, True), (layer.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()]
    channels = [mortice.rand(3) + 0.5 for _ in range(4)]
    image = x(*IMAGE)
    group = mortice.ops.aten.native_group_norm(x(2, 4, 6), None, None, 2, 4, 6, 2, 1e-5)
    out_mask = (True, True, True)
    complexes = mortice.complex(x(), x())
    return {
        "threshold": [(x(), 0.1, 20.0), (wild(), 0.5, -1)],
        "threshold_backward": grads(lambda g, v: (g, v, 0.2)),
        "gelu": [*unary(), (x(), {"approximate": "tanh"})],
        "gelu_backward": [*grads(lambda g, v: (g, v)), (x(), x(), {"approximate": "tanh"})],
        "silu": unary(),
        "silu_backward": [(x(), x())],
        "mish": unary(),
        "mish_backward": [(x(), x())],
        "elu_backward": [(x(), 1.2, 1.1, 0.9, False, x()), (x(), 1.2, 1.1, 0.9, True, x())],
        "leaky_relu_backward": grads(lambda g, v: (g, v, 0.1, False)),
        "_prelu_kernel": [(x(), x()), (x(), x(1, 4))],
        "_prelu_kernel_backward": [(x(), x(), x())],
        "hardtanh_backward": grads(lambda g, v: (g, v, -1, 1)),
        "hardsigmoid": unary(),
        "hardsigmoid_backward": grads(lambda g, v: (g, v)),
        "hardswish": unary(),
        "hardswish_backward": grads(lambda g, v: (g, v)),
        "softplus": [*unary(), (x(), 2, 0.5)],
        "softplus_backward": [(x(), x(), 1, 20), (x(), x(), 2, 0.5)],
        "softshrink": [*unary(), (x(), 0.1)],
        "softshrink_backward": grads(lambda g, v: (g, v, 0.5)),
        "hardshrink": [*unary(), (x(), 0.1)],
        "hardshrink_backward": grads(lambda g, v: (g, v, 0.5)),
        "log_sigmoid_forward": unary(),
        "log_sigmoid_backward": [(x(), x(), mortice.empty(0))],
        "glu": [(x(3, 4),), (x(6, 2), 0)],
        "glu_backward": [(x(3, 2), x(3, 4), -1), (x(3, 2), x(6, 2), 0)],
        "sigmoid_backward": [(x(), mortice.rand(3, 4)), (complexes, complexes)],
        "tanh_backward": [(x(), mortice.rand(3, 4)), (complexes, complexes)],
        "_softmax": [
            (x(), 1, False),
            (x(2, 3, 4), 0, False),
            (x(3).sum(), 0, False),
            (x().to(float16), -1, False),
        ],
        "_log_softmax": [(x(), 1, False), (x(2, 3, 4), 0, False), (x(3).sum(), 0, False)],
        "_softmax_backward_data": [(x(), x().softmax(1), 1, mortice.float32)],
        "_log_softmax_backward_data": [(x(), x().log_softmax(1), 1, mortice.float32)],
        "logsumexp": [
            (x(), (1,)),
            (x(), (0, 1), True),
            (tensor([[-inf, -inf], [inf, 1.0]]), (1,)),
            (ints(3, 2), (0,)),
        ],
        "sgn": [*unary(), (complexes,), (mortice.zeros(2, dtype=mortice.complex64),)],
        "frac": unary(),
        "exp2": [*unary(), (ints(3),)],
        "sinc": unary(),
        "deg2rad": [*unary(), (ints(3),)],
        "rad2deg": [*unary(), (ints(3),)],
        "logit": [(PROBABILITIES,), (PROBABILITIES, 0.2), (PROBABILITIES.to(float16), 0.1)],
        "logit_backward": [(x(9), PROBABILITIES), (x(9), PROBABILITIES, 0.2)],
        "round.decimals": [
            (x(), {"decimals": 1}),
            (x() * 100, {"decimals": -1}),
            (ints(3), {"decimals": 2}),
        ],
        "nan_to_num": [
            *unary(),
            (wild(), 1.0, 2.0, -3.0),
            (wild().to(float16),),
            (wild().to(mortice.bfloat16),),
            (ints(3),),
        ],
        "angle": [*unary(), (complexes,), (ints(3),)],
        "conj_physical": [(x(),), (complexes,)],
        "isfinite": [*unary(), (ints(3),), (complexes / 0,)],
        "isposinf": [*unary(), (ints(3),)],
        "isneginf": [*unary(), (ints(3),)],
        "isreal": [*unary(), (complexes,)],
        "zero": unary(),
        "fill.Tensor": [(x(), tensor(2)), (ints(3), tensor(2.5))],
        "special_entr": [*unary(), (ints(3),)],
        "fmax": [(x(), x()), (wild(), wild().flip(0)), (ints(3), x(3))],
        "fmin": [(x(), x()), (wild(), wild().flip(0)), (ints(3), x(3))],
        "hypot": [(x(), x()), (wild(), wild().flip(0)), (x().to(float16), x().to(float16) * 100)],
        "heaviside": [(x(), x()), (wild(), wild().flip(0))],
        "logaddexp": [(x(), x()), (tensor([inf, -inf, 1.0, nan]), tensor([inf, -inf, -inf, 1.0]))],
        "logaddexp2": [(x(), x()), (tensor([inf, -inf, 1.0, nan]), tensor([inf, -inf, -inf, 1.0]))],
        "xlogy.Tensor": [(x(), mortice.rand(3, 4)), (wild(), wild().flip(0)), (ints(3), ints(3))],
        "special_xlog1py": [(x(), mortice.rand(3, 4)), (wild(), wild().flip(0))],
        "lerp.Tensor": [(x(), x(), mortice.rand(3, 4)), (x(), x(), mortice.rand(4))],
        "addcmul": [
            (x(), x(), x()),
            (x(), x(4), x(), {"value": 2.5}),
            (ints(3), ints(3), ints(3), {"value": 2}),
        ],
        "addcdiv": [(x(), x(), x()), (x(), x(4), x(), {"value": 2.5})],
        "clamp_min": [(x(), 0.1), (ints(5), 2), (wild(), 0.5)],
        "clamp_max": [(x(), 0.1), (ints(5), 2), (wild(), 0.5)],
        "clamp_min.Tensor": [(x(), x()), (ints(5), x(5))],
        "clamp_max.Tensor": [(x(), x()), (ints(5), x(5))],
        "masked_fill.Scalar": [
            (x(2, 2), BOOLS, 2),
            (ints(2, 2), BOOLS, 3),
            (x(3, 2, 2), BOOLS, -inf),
        ],
        "masked_fill.Tensor": [(x(2, 2), BOOLS, tensor(2)), (ints(2, 2), BOOLS, tensor(3))],
        "isin.Tensor_Tensor": [(ints(3, 4), ints(3)), (ints(6), ints(2, 2), {"invert": True})],
        "sum": [(x(),), (ints(3, 2),), (x(), {"dtype": float64}), (x(2).sum(),)],
        "nansum": [
            (wild()[:10],),
            (wild().view(3, 5).nan_to_num(0, 1, 2), (1,), True),
            (ints(3, 2), (0,)),
        ],
        "max": [(x(),), (wild(),), (ints(4),)],
        "min": [(x(),), (wild(),), (ints(4),)],
        "aminmax": [(x(),), (x(), {"dim": 1}), (x(), {"dim": 0, "keepdim": True})],
        "all": [(BOOLS,), (x(),), (ints(3).to(mortice.uint8),)],
        "all.dim": [(BOOLS, 1), (x(), 0, True), (ints(3).to(mortice.uint8), 0)],
        "all.dims": [(BOOLS, (0, 1)), (x(), None), (x(), (1,), True)],
        "var_mean.correction": [
            (x(),),
            (x(), (1,), {"correction": 0}),
            (x(), (0,), {"correction": 1, "keepdim": True}),
        ],
        "std.correction": [(x(),), (x(), (1,), {"correction": 0}), (x().to(float16), (1,))],
        "std_mean.correction": [(x(),), (x(), (1,), {"correction": 0, "keepdim": True})],
        "count_nonzero": [(ints(3, 4),), (ints(3, 4), 1)],
        "count_nonzero.dim_IntList": [(ints(3, 4), (0, 1)), (x(), (1,))],
        "trace": [(x(3, 4),), (ints(3, 3),)],
        "linalg_vector_norm": [
            (x(),),
            (x(), 1),
            (x(), inf, (1,)),
            (x(), -inf, (0,), True),
            (x(), 0),
            (x(), 3.5, (1,)),
            (x(), 2, (0, 1), {"dtype": float64}),
            (complexes,),
            (x().to(float16), 2),
        ],
        "mv": [(x(3, 4), x(4))],
        "dot": [(x(4), x(4)), (ints(4), ints(4))],
        "baddbmm": [
            (x(2, 3, 5), x(2, 3, 4), x(2, 4, 5)),
            (x(5), x(2, 3, 4), x(2, 4, 5), {"beta": 0.5, "alpha": 2}),
        ],
        "nll_loss_forward": [
            (log, target, None, 0, -100),
            (log, target, weight, 1, -100),
            (log, target, weight, 2, 3),
            (log[0], target[1], weight, 1, -100),
            (log, target, None, 1, 3),
        ],
        "nll_loss_backward": [
            (x(5), log, target, weight, 0, 3, tensor(0.0)),
            (tensor(1.5), log, target, weight, 1, -100, tensor(2.0)),
            (tensor(1.5), log, target, None, 2, 3, tensor(4.0)),
            (tensor(1.5), log[0], target[1], weight, 1, -100, tensor(0.5)),
        ],
        "native_layer_norm": [(layer, (4,), x(4), x(4), 1e-5), (layer, (5, 4), None, None, 1e-3)],
        "native_layer_norm_backward": [
            (x(2, 5, 4), layer, (4,), *stats, x(4), x(4), out_mask),
            (x(2, 5, 4), layer, (4,), *stats, None, None, (True, False, False)),
        ],
        "_native_batch_norm_legit.no_stats": [
            (image, channels[0], channels[1], True, 0.1, 1e-5),
            (image.to(float16), channels[0], None, True, 0.1, 1e-5),
        ],
        "_native_batch_norm_legit_no_training": [
            (image, *channels, 0.1, 1e-5),
            (image.to(float16), *channels, 0.1, 1e-5),
        ],
        "native_batch_norm_backward": [
            (
                x(*IMAGE),
                image,
                channels[0],
                channels[1],
                channels[2],
                channels[3],
                channels[1],
                True,
                1e-5,
                out_mask,
            ),
            (
                x(*IMAGE),
                image,
                None,
                channels[1],
                channels[2],
                None,
                None,
                False,
                1e-5,
                (True, False, True),
            ),
        ],
        "native_group_norm": [
            (x(2, 4, 6), x(4), x(4), 2, 4, 6, 2, 1e-5),
            (x(2, 4, 3, 2), None, None, 2, 4, 6, 4, 1e-5),
        ],
        "native_group_norm_backward": [
            (x(2, 4, 6), x(2, 4, 6), group[1], group[2], x(4), 2, 4, 6, 2, out_mask)
        ],
        "index_add": [
            (x(), 1, tensor([0, 2, 0]), x(3, 3)),
            (x(), 0, tensor([2]), x(1, 4), {"alpha": 2}),
        ],
        "index_copy": [(x(), 1, tensor([0, 2]), x(3, 2)), (x(), -2, tensor([1]), x(1, 4))],
        "index_fill.int_Scalar": [(x(), 1, tensor([0, 2]), 3.5), (ints(3, 2), 0, tensor([1]), 7)],
        "index_fill.int_Tensor": [(x(), 1, tensor([0, 2]), tensor(3.5))],
        "scatter.reduce": [
            (x(), 1, ints(3, 2), x(3, 2), {"reduce": "add"}),
            (x(), 0, ints(2, 4, high=3), x(2, 4), {"reduce": "multiply"}),
        ],
        "scatter.value_reduce": [(x(), 1, ints(3, 2), 2.5, {"reduce": "add"})],
        "masked_select": [(x(2, 2), BOOLS), (x(2, 1, 2), BOOLS)],
        "take": [(x(), tensor([[0, 5], [11, -1]]))],
        "put": [(x(), tensor([0, 5, -1]), x(3)), (x(), tensor([0, 0]), x(2), True)],
        "one_hot": [(ints(3, 2), 5)],
        "_pool_scatter": [(x(2, 3), ints(2, 3, high=5), 6)],
        "stack": [((x(), x()),), ((x(), x(), x()), -1)],
        "roll": [(x(), (1,), (1,)), (x(), (2, -1), (0, 1)), (x(), (5,))],
        "tril": [(x(),), (x(2, 3, 4), 1), (x(4, 3), -1)],
        "triu": [(x(),), (x(2, 3, 4), 1), (x(4, 3), -1)],
        "transpose.int": [(x(), 0, 1), (x(2, 3, 4), -1, 0)],
        "t": [(x(),), (x(3),)],
        "squeeze": [(x(1, 3, 1),), (x(2),)],
        "unbind.int": [(x(),), (x(), 1)],
        "split.Tensor": [(x(), 2), (x(), 3, 1), (x(), 9)],
        "unfold": [(x(5, 6), 1, 3, 2), (x(6, 5).t(), 0, 2, 1)],
        "_reshape_alias": [(x(), (2, 6), (6, 1))],
        "_unsafe_view": [(x(), (2, 6))],
        "replication_pad1d": [(x(2, 3, 4), (1, 2)), (x(2, 4), (0, 1))],
        "im2col": [
            (x(2, 3, 5, 6), (2, 3), (1, 2), (1, 1), (2, 1)),
            (x(3, 5, 6), (2, 2), (1, 1), (0, 0), (1, 1)),
        ],
        "_adaptive_avg_pool3d_backward": [
            (x(2, 3, 2, 3, 2), x(2, 3, 4, 5, 3)),
            (x(3, 1, 1, 1), x(3, 2, 2, 2)),
        ],
        "upsample_nearest1d": resized(1),
        "upsample_nearest2d": [*resized(2), *resized(2, 1.7, 0.6)],
        "upsample_nearest3d": resized(3),
        "_upsample_nearest_exact1d": resized(1),
        "_upsample_nearest_exact2d": resized(2),
        "_upsample_nearest_exact3d": resized(3),
        "upsample_linear1d": [*resized(1, False), *resized(1, True)],
        "upsample_bilinear2d": [
            *resized(2, False),
            *resized(2, True),
            *resized(2, False, 1.4, 0.6),
        ],
        "upsample_trilinear3d": [*resized(3, False), *resized(3, True)],
        "upsample_bicubic2d": [*resized(2, False), *resized(2, True)],
        "_resample_adjoint": [
            (x(2, 3, 7, 3), (4, 5), "linear", False, (0.0, 0.0)),
            (x(2, 3, 7, 3), (4, 5), "cubic", True, (0.0, 0.0)),
            (x(2, 3, 7, 3), (4, 5), "nearest", False, (0.0, 0.0)),
            (x(2, 3, 7), (4,), "nearest-exact", False, (0.0,)),
        ],
        "eye.m": [(3, 4), (2, 2, {"dtype": int64})],
        "linspace": [
            (0, 1, 5),
            (3.0, -2.0, 7, {"dtype": float64}),
            (0, 10, 4, {"dtype": int64}),
            (4.3, 0, 50, {"dtype": int64}),
            (2, 3, 1),
        ],
        "logspace": [
            (0, 1, 5),
            (0, 3, 4, 2.0, {"dtype": float64}),
            (4.3, 0, 2, 2.0, {"dtype": int64}),
        ],
        "zeros": [((2, 3),)],
        "ones": [((2, 3), {"dtype": int64})],
        "zeros_like": [(x(),)],
        "ones_like": [(x(),)],
        "rsub.Tensor": [(x(), x()), (x(), 2, {"alpha": 3})],
        "diag_embed": [(x(2, 3),), (x(2, 3), 1)],
        "block_diag": [((x(2, 2), x(1, 3)),)],
        "native_dropout_backward": [(x(), x() > 0, 2.0)],
        "diagonal_scatter": [(x(3, 3), x(3))],
        "_safe_softmax": [(tensor([[1.0, 2.0], [-inf, -inf]]), 1)],
    }
