"""The data sets that Hush knows by name: their files, their homes, what the files must be.

Each file is pinned by the sha256 of its bytes, or, where it may be kept compressed with xz, of its unpacked bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file: its name, the sha256 and the size of what it must hold, and the address that has it, if any.

    A name that ends in .xz may also lie there unpacked; sha256 and size are those of the unpacked bytes.
    """

    name: str
    sha256: str
    size: int
    address: str = ""  # of the unpacked file, where the name ends in .xz


@dataclass(frozen=True)
class Source:
    """Where a data set comes from, and what it is."""

    name: str
    files: tuple[File, ...]
    origin: str
    licence: str
    how_to_get: str


_FASHION = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
_HOUSING = "https://github.com/ageron/handson-ml2/raw/master/datasets/housing/housing.csv"

DIGITS = Source(
    "digits",
    (),
    "UCI Optical Recognition of Handwritten Digits, test part, as shipped with scikit-learn",
    "CC BY 4.0",
    "it comes with scikit-learn",
)
MNIST = Source(
    "mnist",
    (
        File(
            "train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9_912_422
        ),
        File("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28_881),
        File(
            "t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1_648_877
        ),
        File("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4_542),
    ),
    "LeCun, Cortes, Burges: the MNIST database of handwritten digits",
    "usually stated as CC BY-SA 3.0",
    "it is one of the four original files, as torchvision's datasets.MNIST leaves them in MNIST/raw",
)
FASHION_MNIST = Source(
    "fashion-mnist",
    tuple(
        File(name, sha256, size, _FASHION + name)
        for name, sha256, size in (
            (
                "train-images-idx3-ubyte.gz",
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                26_421_880,
            ),
            ("train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
            (
                "t10k-images-idx3-ubyte.gz",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                4_422_102,
            ),
            ("t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
        )
    ),
    "Xiao, Rasul, Vollgraf: Fashion-MNIST, github.com/zalandoresearch/fashion-mnist",
    "MIT",
    "it is in the folder data/fashion of github.com/zalandoresearch/fashion-mnist",
)
# The official binary files, and the other form in which CIFAR-10 may lie there.
_CIFAR10_BINARIES = tuple(
    File(name, sha256, 30_730_000)
    for name, sha256 in (
        ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    )
)
CIFAR10 = Source(
    "cifar10",
    _CIFAR10_BINARIES,
    "Krizhevsky: Learning multiple layers of features from tiny images (technical report)",
    "none stated; research use with citation",
    "it is one of the six .bin files of the author's archive cifar-10-binary.tar.gz",
)
CIFAR10_SHEETS = tuple(
    File(name, sha256, size)
    for name, sha256, size in (
        ("cifar10_train_1.webp", "1cce9dab7f50eb9cc8dd1582355c72fafdc0267a7bc0e378e48e0ba605231c36", 17_103_866),
        ("cifar10_train_2.webp", "0d92367c6d2161588b656006bcac294e80678d9d180126bc582e6581a15613d6", 17_147_110),
        ("cifar10_train_3.webp", "284ce6a006a6568b9c53a7fb582a4e9b6f8bcca38776c3794a2e02316b6ef04a", 17_155_986),
        ("cifar10_train_4.webp", "3faf45f24d8754565b83ba0a9ad2008d9d9c51acaf1f08bec7e53f304a88cd13", 17_129_486),
        ("cifar10_train_5.webp", "7a09aa51bd5a8385d290cdbacdfb13dc38b045f4503d4a22bd7b35f1f6017d17", 17_107_302),
        ("cifar10_train_labels.npy", "fad921ba16b0efeebb54393d1351545d1fe1a357f6f81324c821e3e11b956c70", 50_128),
        ("cifar10_test.webp", "4f5b2f08eb4b5472f1cb675ee58589d83185cc61e3078fbc356da1024f0327d3", 17_136_434),
        ("cifar10_test_labels.npy", "19004b019bd095265b4ce6637c9ff979c66abcbc8e658a665f791b487cdea5eb", 10_128),
    )
)
ADULT = Source(
    "adult",
    (
        File("adult.data.xz", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d", 3_974_305),
        File("adult.test.xz", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05", 2_003_153),
    ),
    "UCI Machine Learning Repository: Adult (census income 1994)",
    "CC BY 4.0",
    "it is in the archive of the data set Adult at the UCI Machine Learning Repository",
)
DIABETES = Source(
    "diabetes130",
    (File("diabetic_data.csv.xz", "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97", 19_159_383),),
    "UCI Machine Learning Repository: Diabetes 130-US hospitals 1999-2008",
    "CC BY 4.0",
    "it is in the archive of the data set Diabetes 130-US Hospitals at the UCI Machine Learning Repository",
)
HOUSING = Source(
    "california-housing",
    (File("housing.csv.xz", "8a3727f4cf54ac1a327f69b1d5b4db54c5834ea81c6e4efc0d163300022a685e", 1_423_529, _HOUSING),),
    "1990 US census by way of StatLib, as in github.com/ageron/handson-ml2",
    "public domain",
    "it is datasets/housing/housing.csv of github.com/ageron/handson-ml2",
)
LOCATION = Source(
    "location30",
    (File("bangkok.csv.xz", "2ca8f7fc231251e089823e44d39f2d1eed124574cc351c7f80368cfe631dd718", 4_492_469),),
    "Shokri et al.: Location-30 (Bangkok check-ins), github.com/privacytrustlab/datasets",
    "none stated; research use",
    "it is in dataset_location.tgz of github.com/privacytrustlab/datasets (the file bangkok, renamed)",
)
