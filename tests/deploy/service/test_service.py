"""The service as a user meets it: inputs, batches, streams, alarms, reload, metrics."""

from __future__ import annotations

import base64
import gc
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from light_task import samples
from live_service import npy, png, reason_of, running
from torch import nn

import unseen
from unseen.deploy import export_onnx, open_scorer
from unseen.deploy.service.limits import Limits
from unseen.deploy.service.settings import Batching, Watching
from unseen.errors import UnseenError

WINDOW = 20


def batch(shift=0.0):
    return samples("test", shift).tensors[0].numpy()


@pytest.fixture(scope="module")
def webhook():
    """A receiver whose first answer is an error; returns its URL and what it got."""
    got = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if len(got) == 1 else 200)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", got
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def folder(light_run, own_export, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "light.onnx").write_bytes(light_run.exported.read_bytes())
    (folder / "own.onnx").write_bytes(own_export.exported.read_bytes())
    return folder


@pytest.fixture(scope="module")
def client(folder, webhook):
    from unseen.deploy.service import webhooks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(webhooks.Webhooks.__init__, "__defaults__", (lambda outcome: None, (0.01,)))
        with running(
            [folder / "light.onnx", folder / "own.onnx"],
            watching=Watching(window=WINDOW),
            webhooks=(webhook[0],),
        ) as client:
            yield client


def test_predictions_equal_those_of_the_model(client, folder):
    x = batch()
    seen = open_scorer(folder / "light.onnx", threads=1).observe(x[:7])
    found = client.arrays(x[:7])
    assert [row["index"] for row in found["predictions"]] == seen.logits.argmax(1).tolist()
    scores = [row["score"] for row in found["predictions"]]
    np.testing.assert_allclose(scores, seen.scores, atol=2e-6)
    assert all(abs(sum(row["probabilities"]) - 1) < 1e-4 for row in found["predictions"])


def test_every_kind_of_body_gives_the_same_answer(client):
    x = batch()[:3]
    expected = client.arrays(x)["predictions"]
    as_json = client.post("/predict", json={"arrays": x.tolist()}).json()["predictions"]
    files = [("f", (f"{i}.npy", npy(one))) for i, one in enumerate(x)]
    as_files = client.post("/predict", files=files).json()["predictions"]
    alone = client.post("/predict", files=files[:1]).json()["predictions"]
    assert len(alone) == 1 and alone[0]["index"] == expected[0]["index"]
    fortran = client.arrays(np.asfortranarray(x.astype(">f4")))["predictions"]
    for found in (as_json, as_files, fortran):
        for a, b in zip(found, expected, strict=True):
            assert a["index"] == b["index"] and a["score"] == pytest.approx(b["score"], abs=2e-6)
    image, run = png(), {"run": "own"}
    bodies = [
        {"data": image, "headers": {"Content-Type": "image/png"}},
        {"files": [("f", ("a.png", image, "image/png"))]},
        {"json": {"images": [base64.b64encode(image).decode()]}},
        {"json": {"images": ["data:image/png;base64," + base64.b64encode(image).decode()]}},
    ]
    answers = [client.post("/predict", params=run, **body).json() for body in bodies]
    assert answers[0]["n"] == 1 and len({str(a["predictions"]) for a in answers}) == 1


def test_bug_gives_json_without_a_traceback(client, monkeypatch):
    logged = []
    monkeypatch.setattr("unseen.deploy.service.gate._log.exception", lambda *a: logged.append(a))
    monkeypatch.setattr("unseen.deploy.service.app.inputs_of", lambda *_: 1 / 0)
    answer = client.post(
        "/predict", data=npy(batch()[:1]), headers={"Content-Type": "application/x-npy"}
    )
    assert answer.status_code == 500 and answer.json()["error"]["code"] == "internal"
    end = time.monotonic() + 20  # the traceback is logged after the answer
    while not logged and time.monotonic() < end:
        time.sleep(0.01)
    assert "division" not in answer.text and len(logged) == 1


def test_score_judges_samples_together_and_changes_no_stream(client, folder):
    x = batch(3.0)
    verdict = open_scorer(folder / "light.onnx", threads=1).verdict(x)
    found = client.arrays(x, domain="judged", path="/score")
    assert found["verdict"] == verdict.verdict != "ok" and found["n"] == len(found["scores"])
    assert found["score"] == pytest.approx(verdict.score, abs=1e-6)
    assert found["predicted_accuracy"] == pytest.approx(verdict.predicted_accuracy, abs=1e-6)
    assert np.mean(found["correctness"]) == pytest.approx(verdict.predicted_accuracy, abs=1e-3)
    assert "judged" not in client.service.runs["light"].current.streams.by_domain


def test_concurrent_requests_share_passes_and_keep_their_answers(client):
    x = batch()
    expected = client.arrays(x, domain="all")["predictions"]
    passes = client.service.metrics.batch.labels("light")._sum.get
    before = client.service.metrics.batch.labels("light")
    count = sum(bucket.get() for bucket in before._buckets)
    loaded = client.service.runs["light"].current
    loaded.batcher.max_wait = 0.2
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda one: client.arrays(one[None], domain="one"), x[:32]))
    loaded.batcher.max_wait = 0.002
    for answer, row in zip(found, expected, strict=False):
        assert answer["predictions"][0]["score"] == pytest.approx(row["score"], abs=2e-6)
    assert sum(bucket.get() for bucket in before._buckets) - count < 32
    assert passes() > 0


def test_answer_on_an_open_connection_is_sent_at_once(client):
    """Without TCP_NODELAY, its body waits until the client has acknowledged the head: 40 ms."""
    connection = HTTPConnection(urlsplit(client.url).netloc, timeout=60)
    seconds = []
    for _ in range(60):
        start = time.perf_counter()
        connection.request("GET", "/health")
        assert json.load(connection.getresponse()) == {"status": "ok"}
        seconds.append(time.perf_counter() - start)
    connection.close()
    assert sorted(seconds)[15] < 0.03  # a quarter of them; others may wait for a processor


def test_imported_modules_are_left_out_of_garbage_collections_while_it_runs(client):
    assert gc.get_freeze_count() > 10_000


def test_shift_raises_an_alarm_for_its_domain_only(client, webhook):
    quiet = client.arrays(batch()[:WINDOW], domain="quiet")["stream"]
    assert quiet["windows"] == 1 and not quiet["alarm"] and quiet["reading"]["verdict"] == "ok"
    loud = client.arrays(batch(3.0)[:30], domain="loud")["stream"]
    assert (loud["samples"], loud["windows"], loud["gathered"]) == (30, 1, 10)
    reading = loud["reading"]
    assert loud["alarm"] and reading["score"] > reading["threshold"] and reading["sentence"]
    assert reading["low"] <= reading["predicted_accuracy"] <= reading["high"]
    lines = client.get("/metrics").text.splitlines()
    assert 'unseen_alarm{domain="loud",run="light"} 1.0' in lines
    assert 'unseen_alarm{domain="quiet",run="light"} 0.0' in lines
    assert any(line.startswith("unseen_request_seconds_bucket") for line in lines)
    for _ in range(600):
        if len(webhook[1]) >= 2:
            break
        threading.Event().wait(0.05)
    first, again = webhook[1][:2]  # the first try got an error
    assert first == again and first["event"] == "alarm" and first["domain"] == "loud"


def test_stream_equals_one_that_is_judged_at_once(client, folder):
    x = batch(1.5)
    for start in range(0, 60, 7):
        last = client.arrays(x[start : start + 7], domain="parts")["stream"]
    scorer = open_scorer(folder / "light.onnx", threads=1)
    verdict = scorer.judge(scorer.observe(x[40:60]), rate=0.005)
    assert last["windows"] == 3 and last["gathered"] == 0
    assert last["reading"]["score"] == pytest.approx(verdict.score, abs=1e-6)
    assert last["reading"]["predicted_accuracy"] == pytest.approx(
        verdict.predicted_accuracy, abs=1e-5
    )


def test_domain_can_be_forgotten(client):
    client.arrays(batch()[:WINDOW], domain="gone")
    assert client.send("DELETE", "/domains/gone").json() == {"forgotten": "gone"}
    assert client.send("DELETE", "/domains/gone").status_code == 404
    assert 'domain="gone",run="light"} 0.0' not in client.get("/metrics").text
    client.arrays(batch()[:1], domain="site/lab")
    assert client.send("DELETE", "/domains/site%2Flab").json() == {"forgotten": "site/lab"}


def test_domains_that_arrive_together_are_no_more_than_allowed(folder):
    limits, together = Limits(max_domains=3), Batching(max_wait=1000.0, max_batch=12)
    with running([folder / "light.onnx"], limits=limits, batching=together) as other:

        def status(i):
            headers = {"Content-Type": "application/x-npy", "domain": f"d{i}"}
            return other.post("/predict", data=npy(batch()[:1]), headers=headers).status_code

        with ThreadPoolExecutor(12) as pool:
            found = sorted(pool.map(status, range(12)))
        assert found == [200] * 3 + [503] * 9
        assert len(other.get("/state").json()["domains"]) == 3


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_time_to_stop_must_be_a_number(folder, seconds):
    found = pytest.raises(UnseenError, match="stop_seconds")
    with found, running([folder / "light.onnx"], stop_seconds=seconds):
        pass


def test_reload_keeps_the_old_run_if_the_new_one_is_bad(client, folder, own_export):
    path = folder / "own.onnx"
    good = path.read_bytes()
    run = {"run": "own"}
    assert client.post("/reload", params=run).json()["outcome"] == "unchanged"
    path.write_bytes(b"damaged")
    refused = client.post("/reload", params=run)
    assert refused.status_code == 409 and "the old one is served" in reason_of(refused)
    answer = client.post("/predict", params=run, data=png(), headers={"Content-Type": "image/png"})
    assert answer.status_code == 200
    assert "old one is served" in client.get("/state", params=run).json()["problem"]
    path.write_bytes((folder / "light.onnx").read_bytes())  # another model
    assert client.post("/reload", params=run).json()["outcome"] == "reloaded"
    shapes = {r["run"]: r["shape"] for r in client.get("/runs").json()["runs"]}
    assert shapes["own"] == shapes["light"]
    path.write_bytes(good)
    client.service.runs["own"].reload()


def test_reload_forgets_the_metrics_and_alarms_of_the_old_run(
    light_run, own_export, webhook, tmp_path
):
    path = tmp_path / "model.onnx"
    path.write_bytes(light_run.exported.read_bytes())
    watching = Watching(window=WINDOW)
    with running([path], watching=watching, webhooks=(webhook[0],)) as other:
        other.arrays(batch(3.0)[:WINDOW], domain="loud")
        assert 'unseen_alarm{domain="loud",run="model"} 1.0' in other.get("/metrics").text
        path.write_bytes(own_export.exported.read_bytes())
        assert other.post("/reload").json()["outcome"] == "reloaded"
        lines = other.get("/metrics").text.splitlines()
        gauges = [
            li for li in lines if "loud" in li and "_total" not in li and "_created" not in li
        ]
        assert not gauges
        accuracy = open_scorer(path, threads=1).calibration.accuracy.source_accuracy
        (source,) = [line for line in lines if line.startswith("unseen_source_accuracy{")]
        assert float(source.split()[-1]) == pytest.approx(accuracy)
        for _ in range(600):
            events = [m["event"] for m in webhook[1] if m["run"] == "model"]
            if "resolved" in events:
                break
            threading.Event().wait(0.05)
        assert events[-1] == "resolved"


def test_requests_that_outlast_the_stop_get_503(folder, monkeypatch):
    with running([folder / "light.onnx"], stop_seconds=0.1) as other:
        loaded = other.service.runs["light"].current
        started, go_on = threading.Event(), threading.Event()
        observe = loaded.scorer.observe

        def slow(x):
            started.set()
            go_on.wait(20)
            return observe(x)

        monkeypatch.setattr(loaded.scorer, "observe", slow)
        with ThreadPoolExecutor(1) as pool:
            headers = {"Content-Type": "application/x-npy"}
            answer = pool.submit(other.post, "/predict", data=npy(batch()[:1]), headers=headers)
            assert started.wait(20)
            other.service.stop()
            assert answer.result(20).status_code == 503 and "stops" in reason_of(answer.result())
            go_on.set()
        assert other.service.app.cancelled == 1


def test_openapi_describes_every_route_of_the_service(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/predict", "/score", "/health", "/ready", "/metrics", "/reload", "/runs"} <= {*paths}
    assert "multipart/form-data" in paths["/predict"]["post"]["requestBody"]["content"]
    assert client.get("/ready").json() == {"ready": True}


def test_space_around_a_token_is_not_part_of_it(folder):
    with running([folder / "own.onnx"], token=" s3cret\n") as client:
        client.token = "s3cret"
        assert client.get("/runs").status_code == 200
        client.token = "s3cre"
        assert client.get("/runs").status_code == 401
    with pytest.raises(UnseenError, match="UNSEEN_TOKEN is empty"), running([], token=" \n"):
        pass


@pytest.fixture(scope="module")
def steep(tmp_path_factory):
    """A client of a model whose logits overflow before its features do."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        model[2].weight.mul_(100)
    net = unseen.UncertaintyGuided(model, sites=["0"], embedding="0")
    x, y = torch.randn(400, 8), torch.randint(3, (400,))
    unseen.calibrate(net, [(x[:200], y[:200])], held_out=[(x[200:], y[200:])])
    net.keep_held_out(None)
    path = tmp_path_factory.mktemp("steep") / "steep.onnx"
    export_onnx(net, x[:2], path)
    with running([path]) as client:
        yield client


def test_predictions_that_are_not_finite_are_refused_and_not_counted(steep):
    x = np.ones((3, 8), np.float32)
    assert steep.arrays(x)["stream"]["samples"] == 3
    x[1, 0] = 1e38
    answer = steep.post("/predict", data=npy(x), headers={"Content-Type": "application/x-npy"})
    assert answer.status_code == 422 and "not finite" in reason_of(answer)
    assert steep.arrays(x[:1])["stream"]["samples"] == 4
    state = steep.get("/state")
    assert state.status_code == 200 and len(state.json()["recent"]) == 1 and steep.alive()
