"""Parts of the OpenAPI document: bodies of requests, answers, problems."""

from __future__ import annotations

from typing import Any

_ARRAYS = {"description": "Lists of numbers, (N, ...), or an object of them by input."}
_LIST = {"type": "array", "items": {"type": "string"}}
_FILE = {"schema": {"type": "string", "format": "binary"}}

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "description": "One of these fields.",
                    "properties": {
                        "arrays": _ARRAYS,
                        "images": {**_LIST, "description": "Image files in base64."},
                        "texts": _LIST,
                    },
                    "maxProperties": 1,
                    "minProperties": 1,
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "Images, or .npy arrays; one file for each sample.",
                        }
                    },
                }
            },
            "image/*": _FILE,
            "application/x-npy": _FILE,
            "text/plain": {"schema": {"type": "string"}},
        },
    }
}
PREDICTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A prediction with its score for each sample, and the state of the domain.",
        "content": {
            "application/json": {
                "example": {
                    "run": "digits",
                    "n": 1,
                    "domain": "camera-1",
                    "predictions": [
                        {"prediction": "7", "index": 7, "probability": 0.93, "score": 0.11}
                    ],
                    "stream": {"samples": 640, "windows": 10, "alarms": 0, "alarm": False},
                }
            }
        },
    }
}
SCORED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The verdict on all samples together, and a score for each.",
        "content": {
            "application/json": {
                "example": {
                    "run": "digits",
                    "n": 64,
                    "verdict": "shifted",
                    "score": 0.31,
                    "threshold": 0.12,
                    "predicted_accuracy": 0.88,
                    "interval": [0.8, 0.95],
                    "sentence": "Differs from the source.",
                }
            }
        },
    }
}
_PROBLEM = {
    "application/json": {
        "example": {"error": {"status": 422, "code": "invalid_input", "reason": "..."}}
    }
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": _PROBLEM}
    for status, text in {
        401: "No token, or a wrong one.",
        408: "The request came too slowly.",
        413: "Too many bytes, pixels or samples.",
        415: "A type that no run reads.",
        422: "The samples cannot be read, or do not fit the run.",
        503: "Too much to do, out of time, or stopping: try again.",
    }.items()
}
