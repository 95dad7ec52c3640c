"""MNIST, SVHN, MNIST-M, SYN and USPS."""

from __future__ import annotations

from unseen.data import digits
from unseen.data.publishers.parts import DataSet, Part, PublishedFile

_SHA256 = {
    "train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "test_32x32.mat": "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    "train_32x32.mat": "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
}


def _mnist(name: str, size: int) -> PublishedFile:
    # The authors' server refuses downloads; these are the mirrors of PyTorch and of Google.
    bases = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    )
    return PublishedFile(
        f"mnist/{name}",
        tuple(base + name for base in bases),
        _SHA256[name.removesuffix(".gz")],
        size,
    )


def _svhn(name: str, size: int) -> PublishedFile:
    return PublishedFile(
        f"svhn/{name}",
        (f"http://ufldl.stanford.edu/housenumbers/{name}",),
        _SHA256[name.removesuffix(".gz")],
        size,
    )


def _usps(name: str) -> PublishedFile:
    bases = ("https://hastie.su.domains/", "https://web.stanford.edu/~hastie/")
    return PublishedFile(
        f"usps/{name}", tuple(f"{base}ElemStatLearn/datasets/{name}" for base in bases)
    )


_MNIST_PAGE, _MNIST_LICENCE = "http://yann.lecun.com/exdb/mnist/", "CC BY-SA 3.0"
_SVHN_PAGE, _SVHN_LICENCE = "http://ufldl.stanford.edu/housenumbers/", "non-commercial use only"
_USPS_PAGE, _USPS_LICENCE = "https://hastie.su.domains/ElemStatLearn/data.html", "none stated"
_GANIN, _GANIN_LICENCE = "http://yaroslav.ganin.net/", "none stated"
_MNIST_M_DRIVE = (
    "https://drive.google.com/file/d/0B_tExHiYS-0veklUZHFYT19KYjg/view"
    "?resourcekey=0-DE7ivVVSn8PwP9fdHvSUfA"
)
_SYN_DRIVE = "https://drive.google.com/file/d/0B9Z4d7lAwbnTSVR1dEFSRUFxOUU/view"
_MNIST_M = (
    f"download mnist_m.tar.gz in a browser from {_MNIST_M_DRIVE} and unpack it, so that "
    "{folder}/mnist_m contains mnist_m_test/ and mnist_m_test_labels.txt"
)
_SYN = (
    f"download SynthDigits.zip in a browser from {_SYN_DRIVE} and unpack it, so that "
    "{folder}/syn contains synth_test_32x32.mat; without it the task has three unseen domains"
)

DIGITS = DataSet(
    "digits",
    "MNIST and its unseen domains SVHN, MNIST-M, SYN, USPS",
    (
        Part(
            "mnist",
            "train",
            60_000,
            True,
            _MNIST_PAGE,
            _MNIST_LICENCE,
            (
                _mnist("train-images-idx3-ubyte.gz", 9_912_422),
                _mnist("train-labels-idx1-ubyte.gz", 28_881),
            ),
        ),
        Part(
            "mnist",
            "test",
            10_000,
            True,
            _MNIST_PAGE,
            _MNIST_LICENCE,
            (
                _mnist("t10k-images-idx3-ubyte.gz", 1_648_877),
                _mnist("t10k-labels-idx1-ubyte.gz", 4_542),
            ),
        ),
        Part(
            "svhn",
            "test",
            26_032,
            True,
            _SVHN_PAGE,
            _SVHN_LICENCE,
            (_svhn("test_32x32.mat", 64_275_384),),
        ),
        Part(
            "svhn",
            "train",
            73_257,
            False,
            _SVHN_PAGE,
            _SVHN_LICENCE,
            (_svhn("train_32x32.mat", 182_040_794),),
        ),
        Part("mnist_m", "test", 9_001, True, _GANIN, _GANIN_LICENCE, by_hand=_MNIST_M),
        Part("mnist_m", "train", 59_001, False, _GANIN, _GANIN_LICENCE, by_hand=_MNIST_M),
        Part("syn", "test", 9_553, False, _GANIN, _GANIN_LICENCE, by_hand=_SYN),
        Part("syn", "train", 479_400, False, _GANIN, _GANIN_LICENCE, by_hand=_SYN),
        Part("usps", "test", 2_007, True, _USPS_PAGE, _USPS_LICENCE, (_usps("zip.test.gz"),)),
        Part("usps", "train", 7_291, False, _USPS_PAGE, _USPS_LICENCE, (_usps("zip.train.gz"),)),
    ),
    main_file=lambda part: digits.MAIN_FILE[part.domain, part.split],
    count=lambda part, folder: len(digits.read_original(part.domain, part.split, folder)[1]),
    read_by=("digits_shifts", "digit_pairs"),
)
