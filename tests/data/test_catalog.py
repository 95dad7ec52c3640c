"""The catalog of published data sets: list, check, usable variants."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from unseen.cli import data as cli_data
from unseen.data import catalog
from unseen.data.location import VARIABLE, MissingData
from unseen.data.publishers import DATA_SETS, data_set


def test_list_as_json(capsys):
    cli_data.list_(json_=True)
    rows = json.loads(capsys.readouterr().out)["data"]
    assert {r["name"] for r in rows} == {
        "digits",
        "cifar10",
        "driving",
        "amazon_reviews",
        "google_commands",
    }
    assert {r["domain"] for r in rows if r["name"] == "digits"} == {
        "mnist",
        "svhn",
        "mnist_m",
        "syn",
        "usps",
    }
    assert all(r["licence"] and r["page"].startswith("http") and r["samples"] >= 5 for r in rows)


@pytest.mark.parametrize("name", ["cifar10", "driving", "amazon_reviews", "google_commands"])
def test_check_explains_how_to_get_missing_data(name, tmp_path):
    rows = catalog.check(name, tmp_path)
    assert {r["state"] for r in rows} == {"missing"} and any(r["needed"] for r in rows)
    assert all(str(tmp_path / name) in r["problem"] for r in rows)
    assert {r["state"] for r in catalog.fetch(name, tmp_path)} == {"by hand"}


@pytest.mark.parametrize(
    "name, there, enough",
    [
        ("driving", {"highway_fog", "ny_dawn", "euro_fog"}, []),
        ("driving", {"clear", "day", "dusk"}, ["camvid_day", "camvid_day_large", "carla_clear"]),
        (
            "driving",
            {
                "highway_fog",
                *(
                    f"{p}_{w}"
                    for p in ("ny", "euro")
                    for w in ("dawn", "fog", "night", "spring", "winter")
                ),
            },
            ["synthia_fog"],
        ),
        (
            "amazon_shifts",
            {"books raw", "dvd raw", "electronics raw", "kitchen raw"},
            ["the variants ending in _raw"],
        ),
        ("cifar10_c", {"cifar10", "cifar10_c"}, ["CIFAR-10-C as published"]),
        ("cifar_shifts", {"cifar10"}, []),
        ("digit_pairs", {"mnist", "svhn", "mnist_m", "usps"}, ["digits"]),
    ],
)
def test_usable_variants_of_available_parts(name, there, enough):
    data = data_set(name)
    titles = [part.title for part in data.parts if part.domain in there or part.title in there]
    assert data.usable_variants(titles) == enough


def test_parts_of_other_variants_are_optional(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    counted = {
        part.domain: 7
        for part in data_set("driving").parts
        if not part.needed and part.domain != "clear"
    }

    def count(part, folder):
        if part.domain not in counted:
            raise MissingData("not here")
        return counted[part.domain]

    monkeypatch.setitem(DATA_SETS, "driving", replace(data_set("driving"), count=count))
    cli_data.check("driving/synthia_dawn", json_=True)  # exit code 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] and not next(row for row in told["files"] if row["domain"] == "day")["needed"]
    counted.pop("ny_fog")
    with pytest.raises(SystemExit):
        cli_data.check("driving", json_=True)


@pytest.mark.skipif(
    not Path(os.environ.get(VARIABLE, "")).joinpath("amazon_reviews").is_dir(),
    reason="no real data here",
)
@pytest.mark.parametrize("name", ["cifar10", "driving", "amazon_reviews", "google_commands"])
def test_available_real_data_is_readable(name):
    assert all(r["state"] == "ok" and r["n"] > 0 for r in catalog.check(name) if r["needed"])
