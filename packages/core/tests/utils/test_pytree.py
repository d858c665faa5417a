import collections
import dataclasses

import pytest

from mortice.errors import InvalidValue, RegistrationError
from mortice.utils import pytree

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: object
    right: object

    def __post_init__(self):
        self.left = "touched by __post_init__" if self.left == "new" else self.left


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object


TREE = (
    1,
    [2, {"b": 3, "a": (4,)}],
    Point(5, [6]),
    Pair(7, Frozen(8)),
    collections.OrderedDict(z=9, y=10),
    collections.deque([11], maxlen=3),
    collections.defaultdict(list, k=12),
    (),
    None,
)


def test_leaves_in_order_and_back():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, None]
    assert spec.num_leaves == 13
    back = pytree.tree_unflatten(leaves, spec)
    assert back == TREE and back is not TREE
    assert back[5].maxlen == 3 and back[6].default_factory is list
    assert hash(pytree.tree_structure((1, [2]))) == hash(pytree.tree_structure((3, [4])))
    assert pytree.tree_structure((1, [2])) != pytree.tree_structure([1, (2,)])


def test_dataclasses_are_made_without_their_init():
    leaves, spec = pytree.tree_flatten(Pair(1, 2))
    assert spec.unflatten(["new", 2]).left == "new"
    assert leaves == [1, 2]


def test_maps():
    assert pytree.tree_map(lambda a, b: a + b, {"k": (1, 2)}, {"k": (10, 20)}) == {"k": (11, 22)}
    assert pytree.tree_map_only(int, str, [1, 2.0, (True,)]) == ["1", 2.0, ("True",)]
    seen = []
    tree = [1, {"a": 2}]
    assert pytree.tree_map_(seen.append, tree) is tree and seen == [1, 2]
    assert pytree.tree_all(bool, [1, [2]]) and not pytree.tree_any(bool, [0, [None]])
    assert pytree.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]


def test_paths():
    tree = {"a": [1, Point(2, Pair(3, 4))]}
    pairs, _ = pytree.tree_flatten_with_path(tree)
    assert [pytree.keystr(path) for path, _ in pairs] == [
        "['a'][0]", "['a'][1].x", "['a'][1].y.left", "['a'][1].y.right",
    ]  # fmt: skip
    named = pytree.tree_map_with_path(lambda path, x: f"{pytree.keystr(path)}={x}", (1, [2]))
    assert named == ("[0]=1", ["[1][0]=2"])


def test_what_does_not_fit_is_said():
    spec = pytree.tree_structure([1, (2, 3)])
    with pytest.raises(InvalidValue, match="has 3 leaves, but 2 were given"):
        spec.unflatten([1, 2])
    with pytest.raises(InvalidValue, match="expected a tuple but found a list"):
        pytree.tree_map(lambda a, b: a, [1, (2, 3)], [1, [2, 3]])
    with pytest.raises(InvalidValue, match="context"):
        pytree.tree_map(lambda a, b: a, {"a": 1}, {"b": 1})


def test_registered_classes():
    class Box:
        def __init__(self, item):
            self.item = item

    pytree.register_pytree_node(Box, lambda b: ([b.item], "context"), lambda items, _: Box(*items))
    assert pytree.tree_map(lambda x: x + 1, Box([1])).item == [2]
    assert pytree.keystr(pytree.tree_flatten_with_path(Box([1]))[0][0][0]) == "[0][0]"
    with pytest.raises(RegistrationError, match="Box is already registered"):
        pytree.register_pytree_node(Box, lambda b: ([], None), lambda items, _: Box(0))


def test_questions_about_leaves_of_a_type() -> None:
    tree = {"a": [1, "b"], "c": (2.0, None)}
    assert pytree.tree_any_only(int, lambda n: n > 0, tree)
    assert not pytree.tree_any_only(int, lambda n: n > 1, tree)
    assert pytree.tree_all_only(str, str.islower, tree)
    assert pytree.arg_tree_leaves([1, 2], 3, x={"y": 4}) == [1, 2, 3, 4]
