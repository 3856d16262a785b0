"""Answers that say no, in one sentence."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response


class Refusal(Exception):  # noqa: N818 (not an error of ours)
    """A request that is refused."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        # what was sent may be quoted in it; parameters are fields of a form here
        self.sentence = " ".join(sentence.split()).replace("`", "")[:500]
        super().__init__(self.sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refusal_response(refusal: Refusal) -> Response:
    """The answer to a request that is refused."""
    if refusal.status == 204:
        return Response(status_code=204, headers=refusal.headers)
    return JSONResponse({"error": refusal.sentence}, refusal.status, refusal.headers)


#: What each status means, for the specification.
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "description": words,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
            }
        },
    }
    for status, words in {
        400: "The request is malformed, or the file cannot be read.",
        401: "The token is missing or wrong.",
        403: "The page that asks belongs to another site.",
        404: "There is no such model or map.",
        408: "The upload took too long.",
        413: "The file or the image is too large.",
        415: "The file is not a JPEG, PNG, WebP or TIFF image.",
        421: "The service does not answer to this host name.",
        422: "A value of the form is missing or impossible.",
        429: "Too many requests of this client.",
        500: "Something went wrong on our side.",
        503: "The service is busy; try again.",
    }.items()
}
