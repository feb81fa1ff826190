"""Which gateway starts which emulators, and where a learner goes."""

from __future__ import annotations

from server.cluster.conductor import _share
from server.cluster.fabric import Node, best_for_learning, homes_for_learning
from server.fleet import parse

HEAD = Node("a", "10.0.0.1", cpus=2, gpus=0, here=True)
BIG = Node("b", "10.0.0.2", cpus=64, gpus=0, here=False)
FAST = Node("c", "10.0.0.3", cpus=8, gpus=1, here=False)


def test_emulators_for_each_node_are_its_first_gateways_and_others_are_shared_out() -> None:
    nodes = [HEAD, BIG, HEAD, BIG]
    each, shared = parse("mame:pong2600=8@each"), parse("ale:pong=6")
    assert each.each and not shared.each
    assert [_share(each, nodes, number) for number in range(4)] == [8, 8, 0, 0]
    assert [_share(shared, nodes, number) for number in range(4)] == [2, 2, 1, 1]


def test_a_learner_goes_where_the_accelerators_are_and_then_the_cores() -> None:
    assert best_for_learning([HEAD, BIG, FAST]) is FAST
    assert best_for_learning([HEAD, BIG]) is BIG


def test_several_learners_go_where_the_most_is_left_for_each() -> None:
    twin = Node("d", "10.0.0.4", cpus=8, gpus=2, here=False)
    assert homes_for_learning([HEAD, BIG, FAST, twin], 3) == [twin, FAST, twin]
    assert homes_for_learning([HEAD, BIG], 2) == [BIG, BIG]  # half of 64 cores are more than 2
    other = Node("e", "10.0.0.5", cpus=2, gpus=0, here=False)
    assert homes_for_learning([HEAD, other], 3) == [HEAD, other, HEAD]
