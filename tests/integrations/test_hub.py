"""Methods on the Hub: what is written, uploaded over HTTP and loaded again."""

from __future__ import annotations

import json

import pytest
import torch
from local_hub import local_hub
from torch import nn

import unseen
from unseen.errors import UnseenError
from unseen.nn.tensor_files import read_tensors

hub = pytest.importorskip("unseen.integrations.hub")


def model(outputs=2):
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, outputs))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    y = torch.arange(64) % 2
    data = [(torch.randn(64, 4) + 2 * y[:, None], y) for _ in range(4)]
    net = unseen.UncertaintyGuided(model(), sites=["0"], embedding="1", warmup=2, lr=1e-2)
    unseen.fit(net, data, steps=4, held_out=data, progress=False)
    return net


X = torch.randn(16, 4, generator=torch.Generator().manual_seed(1))


def same(one, other):
    return (
        torch.equal(one.predict(X), other.predict(X))
        and torch.equal(one.uncertainty(X), other.uncertainty(X))
        and one.threshold(16) == other.threshold(16)
    )


def test_saved_folder_loads_to_the_same_predictions_scores_and_thresholds(net, tmp_path):
    net.save_pretrained(tmp_path / "saved")
    assert same(net, unseen.Method.from_pretrained(tmp_path / "saved", model()))
    assert same(net, unseen.UncertaintyGuided.from_pretrained(str(tmp_path / "saved"), model()))
    with pytest.raises(UnseenError, match="holds uncertainty_guided, not erm"):
        unseen.ERM.from_pretrained(tmp_path / "saved", model())


def test_every_file_of_weights_names_its_format(net, tmp_path):
    import safetensors

    net.save_pretrained(tmp_path)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert [path.name for path in files] == ["model.safetensors", "source.safetensors"]
    for path in files:
        assert safetensors.safe_open(path, "pt").metadata()["format"] == "pt"


def test_card_has_results_limits_and_the_rate_of_the_alarm(net, tmp_path):
    from huggingface_hub import ModelCard

    card = hub.Card(source="day", results={"night": 0.5, "fog": 0.7}, license="mit", limits="Toy.")
    net.save_pretrained(tmp_path, card=card)
    text = (tmp_path / "README.md").read_text()
    correct = torch.cat([net.predict(x).argmax(1) == y for x, y in net.held_out])
    assert f"| day, held out | {float(correct.double().mean()):.4f} |" in text
    assert "| night, unseen | 0.5000 |" in text and "unseen domains | 0.6000 |" in text
    assert "Rate of false alarms: 1%" in text and "calibrated on 256 held-out samples" in text
    assert f"| 50 | {net.threshold(50, 0.01):.4g} |" in text
    assert "not that predictions are wrong" in text and "- Toy." in text
    assert "from_pretrained(" in text and "model=YourModel()" in text
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.library_name == "unseen" and data.license == "mit"


def test_card_of_a_method_without_calibration_says_so(tmp_path):
    unseen.ERM(model()).save_pretrained(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "The alarm is not calibrated" in text and "not measured" in text
    assert "No unseen domain was evaluated" in text


def test_push_uploads_the_folder_and_from_pretrained_downloads_it(net, tmp_path, monkeypatch):
    from huggingface_hub import constants

    with local_hub() as place:
        monkeypatch.setattr(constants, "ENDPOINT", place.address)
        template = place.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        address = net.push_to_hub("me/waves", token="hf_local", private=True)
        assert address.startswith(f"{place.address}/me/waves/commit/")
        files = place.files["me/waves"]
        names = {"README.md", "config.json", "model.safetensors", "source.safetensors"}
        assert set(files) - {".gitattributes"} == names
        assert 'from_pretrained("me/waves"' in files["README.md"].decode()
        net.save_pretrained(tmp_path / "local")
        assert files["model.safetensors"] == (tmp_path / "local/model.safetensors").read_bytes()

        files["modeling.py"] = b"raise SystemExit('code of the repository ran')"
        options = {"cache_dir": tmp_path / "cache", "token": False}
        assert same(net, unseen.Method.from_pretrained("me/waves", model(), **options))
        assert not any("modeling.py" in asked for asked in place.asked), "code is not fetched"
        with pytest.raises(UnseenError, match="me/none cannot be loaded"):
            unseen.Method.from_pretrained("me/none", model(), **options)


def test_failed_upload_is_an_error_of_ours(net, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnseenError, match="me/waves cannot be uploaded"):
        net.push_to_hub("me/waves", token="hf_local")


def test_network_that_unseen_ships_is_built_from_the_settings(tmp_path):
    from unseen.tasks.own_network import default_network

    made = default_network("table", "classes", (4,), 2).factory(hidden=6)
    net = unseen.ERM(made)
    network = {"modality": "table", "labels": "classes", "shape": [4], "outputs": 2}
    card = hub.Card(config={"network": network, "model": {"hidden": 6}})
    net.save_pretrained(tmp_path / "own", card=card)
    assert torch.equal(unseen.Method.from_pretrained(tmp_path / "own").predict(X), net.predict(X))
    assert "YourModel" not in (tmp_path / "own/README.md").read_text()

    config = json.loads((tmp_path / "own/config.json").read_text())
    config["network"]["outputs"] = "two"
    (tmp_path / "own/config.json").write_text(json.dumps(config))
    with pytest.raises(UnseenError, match=r"network.*outputs"):
        unseen.Method.from_pretrained(tmp_path / "own")


@pytest.mark.parametrize("word", ["os:system", "data:/etc", "your_own_task:waves"])
def test_code_that_a_repository_names_is_not_imported(word, tmp_path):
    unseen.ERM(model()).save_pretrained(tmp_path, card=hub.Card(config={"task": word}))
    with pytest.raises(UnseenError, match="names no network that unseen ships"):
        unseen.Method.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", ["[]", "{", "null", '{"method": "erm"}'])
def test_damaged_config_is_an_error_that_names_the_place(content, net, tmp_path):
    net.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnseenError, match=str(tmp_path)):
        unseen.Method.from_pretrained(tmp_path, model())


def test_card_of_a_run_has_its_domains_and_none_of_its_paths(tmp_path):
    from light_task import light_task

    from unseen.experiments.evaluate import evaluate
    from unseen.training.train import train

    task = light_task()
    run = train(task, "erm", tmp_path / "run", progress=False)
    results = evaluate(run, task)
    net = run.load(task)
    net.save_pretrained(tmp_path / "hub", card=run.folder)
    with pytest.raises(UnseenError, match="is a run of erm, the method is gud: give"):
        unseen.METHODS["gud"](model(), embedding="1").save_pretrained(tmp_path, card=run.folder)
    text = (tmp_path / "hub/README.md").read_text()
    for name, found in results["domains"].items():
        assert f"| {name}, unseen | {found['accuracy']:.4f} |" in text
    assert f"| {task.source.name}, held out | {results['source']['accuracy']:.4f} |" in text
    assert str(tmp_path) not in (tmp_path / "hub/config.json").read_text()
    weights = read_tensors(run.folder / "model.safetensors")
    saved = read_tensors(tmp_path / "hub/model.safetensors")
    assert all(torch.equal(weights[name], saved[name]) for name in weights)
