"""The figures as Prometheus reads them: names, values, buckets, over real HTTP."""

from __future__ import annotations

import json
import math
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace

import pytest
from live import ROOT, Server, Steady

from server.console import demo
from server.exporter import Exporter
from server.exposition import render
from server.stats import LATENCY_BUCKETS_S, Histogram, Recent

SAMPLE = re.compile(r"([a-z_]+)(\{[^}]*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)")


def test_every_line_is_a_sample_or_says_what_it_is() -> None:
    snapshot = demo.snapshot(agents=2)
    odd = replace(snapshot.agents[0], name='a"b\\c', loss=math.nan, q_mean=None)
    lines = render(replace(snapshot, agents=(odd,))).splitlines()
    samples = [line for line in lines if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in samples), samples
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(set(names)) == len(names)
    assert 'coinop_loss{agent="a\\"b\\\\c"} NaN' in lines
    assert not any(line.startswith("coinop_q_mean{") for line in lines)


def test_known_figures() -> None:
    counts = (1, 2) + (0,) * 10 + (4,)
    agent = replace(demo.snapshot().agents[0], latency_counts=counts, latency_sum_s=4.5)
    text = render(replace(demo.snapshot(clients=3), agents=(agent,)))
    assert f'coinop_frames_total{{agent="pong"}} {agent.frames}' in text
    assert "coinop_clients 3" in text
    assert 'coinop_reply_latency_seconds_bucket{agent="pong",le="0.0001"} 1' in text
    assert 'coinop_reply_latency_seconds_bucket{agent="pong",le="0.00025"} 3' in text
    assert 'coinop_reply_latency_seconds_bucket{agent="pong",le="1"} 3' in text
    assert 'coinop_reply_latency_seconds_bucket{agent="pong",le="+Inf"} 7' in text
    assert 'coinop_reply_latency_seconds_sum{agent="pong"} 4.5' in text
    assert 'coinop_reply_latency_seconds_count{agent="pong"} 7' in text


def test_a_counter_never_goes_back_though_a_learner_does() -> None:
    snapshot = demo.snapshot()
    agent = replace(snapshot.agents[0], steps=1000, skipped_steps=3)
    shown = [agent, replace(agent, steps=900, skipped_steps=0), replace(agent, steps=1001)]
    snapshots = iter([replace(snapshot, agents=(one,)) for one in shown])
    exporter = Exporter(lambda: next(snapshots))
    texts = [exporter._answer(b"GET /metrics HTTP/1.1").decode() for _ in shown]
    steps = [re.findall(r"coinop_steps_total\{.*\} (\d+)", text) for text in texts]
    skipped = [re.findall(r"coinop_skipped_steps_total\{.*\} (\d+)", text) for text in texts]
    assert steps == [["1000"], ["1000"], ["1001"]]
    assert skipped == [["3"]] * 3


def test_the_histogram_counts_each_reply_once() -> None:
    recent, histogram = Recent(8), Histogram()
    histogram.follow(recent)
    for value in (0.0001, 0.0002, 2.0):
        recent.add(value)
    histogram.follow(recent)
    histogram.follow(recent)
    assert histogram.counts == (1, 1, *[0] * 10, 1)
    assert histogram.sum_s == pytest.approx(2.0003)
    for _ in range(20):
        recent.add(0.003)
    histogram.follow(recent)
    assert histogram.counts[LATENCY_BUCKETS_S.index(0.005)] == 8  # as many as are kept


def test_the_grafana_dashboard_asks_for_what_there_is() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    text = render(demo.snapshot())
    for panel in board["panels"]:
        for name in re.findall(r"coinop_[a-z_]+", panel["targets"][0]["expr"]):
            assert f"\n{name}" in text, name


def test_over_http(start: Callable[..., Server]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start("--metrics-port", str(port))
    player = Steady(server.port)
    player.plays_on(50)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert float(re.findall(r'coinop_frames_total\{agent="game"\} (\d+)', text)[0]) >= 50
    with pytest.raises(urllib.error.HTTPError, match="404") as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/")
    caught.value.close()
    with socket.create_connection(("127.0.0.1", port)) as end:
        end.sendall(b"x" * 100_000)
        assert end.recv(100)[:12] in (b"HTTP/1.1 431", b"")
    player.finish()
    assert server.stop() == 0
