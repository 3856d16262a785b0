"""Models that come with the package, each with a card; their stock backbones are fetched by hash."""

from __future__ import annotations

from pathlib import Path

from mgcap.errors import BundleError, did_you_mean

#: What commands use when no model is named: ResNet-50 and what it learnt on all of UC Merced.
DEFAULT_MODEL = Path("ucmerced")


def shipped_models() -> dict[str, Path]:
    """The files of the models that come with the package, by name."""
    return {path.stem: path for path in sorted(Path(__file__).parent.glob("*.mgcap"))}


def find_model(model: str | Path) -> Path:
    """The file of a model: a path, or the name of one that comes with the package (a file of that name goes first).

    Raises:
        BundleError: If there is no such file, but a model whose name was perhaps meant.
    """
    path, shipped = Path(model).expanduser(), shipped_models()
    if not path.exists() and str(model) not in shipped and (hint := did_you_mean(model, shipped)):
        raise BundleError(f"there is no model file {model}{hint}")
    return path if path.is_file() else shipped.get(str(model), path)


def model_card(path: Path) -> str | None:
    """The card beside a model file (Markdown), if there is one."""
    card = path.with_suffix(".md")
    return card.read_text(encoding="utf-8") if card.is_file() else None
