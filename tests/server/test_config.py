"""Settings: where they come from, and how wrong ones are refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import config
import main


def parsed(*arguments: str, toml: str = "", tmp_path: Path | None = None) -> config.Config:
    options = main.make_parser().parse_args(list(arguments))
    base = {}
    if toml and tmp_path is not None:
        file = tmp_path / "coinop.toml"
        file.write_text(toml)
        base = config.read_toml(file)
    return config.from_arguments(options, base)


def test_the_defaults_are_within_their_own_bounds() -> None:
    defaults = {
        section: {f.name: f.default for f in dataclasses.fields(kind)}
        for section, kind in config.SECTIONS.items()
    }
    assert config.from_values(defaults) == config.Config()


def test_the_sections_are_those_of_config_and_no_setting_has_two_homes() -> None:
    assert [*config.SECTIONS, "fleet"] == [f.name for f in dataclasses.fields(config.Config)]
    names = [f.name for kind in config.SECTIONS.values() for f in dataclasses.fields(kind)]
    assert len(names) == len(set(names))


def test_every_setting_has_a_sentence_and_numbers_have_unit_and_bounds() -> None:
    for kind in [*config.SECTIONS.values(), config.FleetEntry]:
        for f in dataclasses.fields(kind):
            assert f.metadata["about"].endswith(".")
            if f.metadata["kind"] in (int, float):
                assert f.metadata["unit"]
                assert f.metadata["low"] is not None
                assert f.metadata["high"] is not None


def test_the_command_line_wins_over_the_file_and_the_file_over_the_default(
    tmp_path: Path,
) -> None:
    toml = "[learner]\nbatch_size = 64\ngamma = 0.5\n[emulators]\nlaunch = ['ale:pong=2']\n"
    got = parsed("--batch-size", "128", toml=toml, tmp_path=tmp_path)
    assert (got.learner.batch_size, got.learner.gamma) == (128, 0.5)
    assert got.learner.n_step == config.Config().learner.n_step
    assert got.emulators.launch == ("ale:pong=2",)


FLEET = """
[emulators]
niceness = 5
[[fleet]]
emulator = "mame"
game = "pong2600"
count = 4
[[fleet]]
emulator = "ale"
game = "breakout"
show = true
throttle = false
niceness = 0
"""


def test_a_file_lists_its_fleet_entry_by_entry(tmp_path: Path) -> None:
    got = parsed(toml=FLEET, tmp_path=tmp_path)
    assert got.emulators.niceness == 5
    assert got.fleet == (
        config.FleetEntry("mame", "pong2600", 4, None, None, None),
        config.FleetEntry("ale", "breakout", 1, True, False, 0),
    )


def test_launch_on_the_command_line_takes_the_place_of_the_files_fleet(tmp_path: Path) -> None:
    got = parsed("--launch", "ale:pong", "--show", toml=FLEET, tmp_path=tmp_path)
    assert got.emulators.launch == ("ale:pong",)
    assert got.fleet == ()
    assert (got.emulators.show, got.emulators.niceness) == (True, 5)


def test_throttle_is_on_off_or_left_open() -> None:
    assert parsed().emulators.throttle is None
    assert parsed("--throttle").emulators.throttle is True
    assert parsed("--no-throttle").emulators.throttle is False


@pytest.mark.parametrize(
    ("text", "value"),
    [("250000", 250_000), ("250_000", 250_000), ("250k", 250_000), ("1.5M", 1_500_000)],
)
def test_counts_may_be_short(text: str, value: int) -> None:
    assert parsed("--replay-capacity", text).replay.replay_capacity == value


def test_lists_and_flags() -> None:
    got = parsed(
        "--hidden-sizes", "64,32", "--no-training", "--launch", "ale:a", "--launch", "ale:b"
    )
    assert got.network.hidden_sizes == (64, 32)
    assert got.trainer.training is False
    assert got.emulators.launch == ("ale:a", "ale:b")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batch-size", "0"], "batch_size = 0 is out of range: 1 to 65536"),
        (["--gamma", "1.5"], "gamma = 1.5 is out of range: 0 to 1"),
        (["--gamma", "nan"], "gamma = nan is out of range"),
        (["--port", "99999"], "port = 99999 is out of range: 0 to 65535"),
        (["--replay-storage", "cloud"], "replay_storage = 'cloud' must be one of file, memory"),
        (["--hidden-sizes", "64,0"], "hidden_sizes = 0 is out of range"),
        (["--min-replay", "900k"], "min_replay = 900000 must be at most half of"),
        (["--gateways", "2"], "gateways = 2 needs a cluster: --cluster local"),
        (["--learners", "2"], "learners = 2 needs a cluster: --cluster local"),
        *(
            (["--cluster", "auto", option, value], f"{said} is for one machine; leave it out")
            for option, value, said in [
                ("--trainer", "process", "trainer = process"),
                ("--hold-fps", "900", "hold_fps = 900.0"),
                ("--hold-p99-ms", "5", "hold_p99_ms = 5.0"),
                ("--record", "tape", "record = tape"),
                ("--preview-every", "4", "preview_every = 4"),
            ]
        ),
        (
            ["--cluster", "auto", "--gateways", "3", "--port", "65534"],
            "gateways = 3 from port = 65534 on would end at port 65536; the last one is 65535",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_name_value_and_bounds(
    arguments: list[str], words: str
) -> None:
    with pytest.raises(config.ConfigError, match=words):
        parsed(*arguments)


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        (
            "[learner]\nbatchsize = 1",
            "unknown setting 'batchsize' in .learner.; did you mean 'batch_size'",
        ),
        ("[lerner]\nbatch_size = 1", "unknown section .lerner.; did you mean 'learner'"),
        ("[learner]\nbatch_size = '64'", "batch_size = '64' must be a whole number, 1 to 65536"),
        ("zork = 3", "unknown setting 'zork' = 3; settings stand under a section"),
        ("[learner]\nbatch_size = 64.5", "batch_size = 64.5 must be a whole number"),
        ("[learner]\nbatch_size = true", "batch_size = True must be a whole number"),
        ("[trainer]\ntraining = 1", "training = 1 must be true or false"),
        ("[network]\nhidden_sizes = 64", "hidden_sizes = 64 must be a list"),
        ("learner = 3", "learner"),
        ("batch_size = 512", "batch_size belongs under .learner."),
        ("[learner", "is not valid TOML"),
        (
            "[fleet]\nlaunch = ['ale:pong']",
            r".fleet. must be ..fleet.., once per entry .* belong under .emulators.",
        ),
        ("fleet = 3", r"fleet = 3 must be a list of tables, each under ..fleet.."),
        ("fleet = [3]", r"..fleet.. entry 1: the entry must be a table of settings, not 3"),
        (
            "[[fleet]]\nemulator = 'ale'\ngame = 'pong'\n[[fleet]]\nemulater = 'ale'",
            "entry 2: unknown setting 'emulater' in the entry; did you mean 'emulator'",
        ),
        ("[[fleet]]\nemulator = 'ale'", "entry 1 needs game, such as game = .pong2600."),
        ("[[fleet]]\ngame = 'pong'", "entry 1 needs emulator, such as emulator = .mame."),
        (
            "[[fleet]]\nemulator = 'ale'\ngame = 'pong'\ncount = 0",
            "entry 1: count = 0 is out of range: 1 to 1024",
        ),
        (
            "[[fleet]]\nemulator = 'ale'\ngame = 'pong'\nthrottle = 'yes'",
            "entry 1: throttle = 'yes' must be true or false",
        ),
        (
            "[[fleet]]\nemulator = 'ale'\ngame = 'pong'\nniceness = -5",
            "entry 1: niceness = -5 is out of range: 0 to 19",
        ),
        ("[emulators]\nstall_s = -1", "stall_s = -1 is out of range: 0 to 86400"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, toml: str, words: str) -> None:
    with pytest.raises(config.ConfigError, match=words):
        parsed(toml=toml, tmp_path=tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(config.ConfigError, match=r"cannot read the config file .*none\.toml"):
        config.read_toml(tmp_path / "none.toml")


def test_help_teaches_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.make_parser().parse_args(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for kind in config.SECTIONS.values():
        for f in dataclasses.fields(kind):
            assert f"--{f.name.replace('_', '-')}" in shown
            assert f.metadata["about"] in shown
    assert "(default: 256 transitions; 1 to 65536)" in shown
    assert "examples:" in shown


def test_an_unknown_option_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.make_parser().parse_args(["--batch-sise", "3"])
    assert "--batch-sise" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["--bach-size", "3"], "did you mean --batch-size?"),
        (["--lauch=ale:pong"], "did you mean --launch?"),
        (["atach"], "did you mean attach?"),
        (["eval", "--epsodes", "3"], "did you mean --episodes?"),
    ],
)
def test_a_misspelt_option_or_command_is_guessed(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.main(arguments)
    assert meant in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main.main(["--nothing-like-it", "3"])
    assert "did you mean" not in capsys.readouterr().err
