import pytest

from vgpuscope.knowledge.vendors import (
    BY_ALLOCATED,
    BY_REGISTER,
    BY_TO_ALLOCATE,
    BY_WORD,
    VENDORS,
    Vendor,
    vendor_by_resource,
)
from vgpuscope.model.quantity import MIB

BY_ANNOTATION: dict[str, Vendor] = BY_REGISTER | BY_ALLOCATED | BY_TO_ALLOCATE

# word, resources, registration, node annotation, allocated, to-allocate, MiB of 1 in the memory resource
ROWS = [
    ("NVIDIA", "nvidia.com/gpu gpumem gpucores", "json", "hami.io/node-nvidia-register", "hami.io/vgpu", "both", 1),
    *[
        (
            word,
            f"huawei.com/{word} {word}-memory {word}-core",
            "json",
            f"hami.io/node-register-{word}",
            f"hami.io/{word}",
            "both",
            1,
        )
        for word in (
            "Ascend910A",
            "Ascend910B2",
            "Ascend910B3",
            "Ascend910B4",
            "Ascend910B4-1",
            "Ascend310P",
            "Ascend910C",
        )
    ],
    (
        "MLU",
        "cambricon.com/vmlu mlu.smlu.vmemory mlu.smlu.vcore",
        "capacity",
        None,
        "hami.io/cambricon-mlu",
        "both",
        256,
    ),
    ("DCU", "hygon.com/dcunum dcumem dcucores", "text", "hami.io/node-dcu-register", "hami.io/dcu", "both", 1),
    *[
        (
            word,
            f"iluvatar.ai/{word}-vgpu {word}.vMem {word}.vCore",
            "text",
            f"hami.io/node-{word}-register",
            f"hami.io/{word}",
            "both",
            256,
        )
        for word in ("BI-V100", "BI-V150", "MR-V100", "MR-V50")
    ],
    ("Metax-GPU", "metax-tech.com/gpu", "capacity", None, "hami.io/metax-gpu", "both", None),
    (
        "Metax-SGPU",
        "metax-tech.com/sgpu vmemory vcore",
        "metax",
        "metax-tech.com/node-gpu-devices",
        "hami.io/metax-sgpu",
        "both",
        1024,
    ),
    ("Mthreads", "mthreads.com/vgpu sgpu-memory sgpu-core", "capacity", None, "hami.io/mthreads-vgpu", "one", 512),
    ("GCU", "enflame.com/gcu", "capacity", None, "hami.io/enflame-gcu", "both", None),
    (
        "Enflame",
        "enflame.com/drs-gcu gcu-memory gcu-core",
        "enflame",
        "enflame.com/gcu-drs-capacity",
        "hami.io/enflame-vgpu",
        "one",
        1024,
    ),
    ("kunlun", "kunlunxin.com/xpu", "capacity", None, "hami.io/kunlun", "one", None),
    ("XPU", "kunlunxin.com/vxpu vxpu-memory -", "json", "hami.io/node-register-xpu", "hami.io/xpu", "both", 1),
    ("AWSNeuron", "aws.amazon.com/neuron - neuroncore", "capacity", None, "hami.io/aws-neuron", "one", None),
    ("AMD", "amd.com/gpu gpumem gpucores", "json", "hami.io/node-amd-register", "hami.io/amd", "both", 1),
    ("Vastai", "vastaitech.com/va", "json", "hami.io/node-va-register", "hami.io/Vastai", "both", None),
    ("Biren", "birentech.com/gpu", "json", "hami.io/node-biren-register", "hami.io/Biren", "both", None),
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_table_says_what_hami_does(row):
    word, resources, registration, register, assigned, keys, mib = row
    vendor = BY_WORD[word]
    count, memory, core = (*resources.split(), "-", "-")[:3]
    domain = count.split("/")[0]
    assert (vendor.count, vendor.memory, vendor.core) == (
        count,
        None if memory == "-" else f"{domain}/{memory}",
        None if core == "-" else f"{domain}/{core}",
    )
    assert vendor.registration == registration
    assert (vendor.registers or (None,))[0] == register
    assert vendor.memory_unit == (mib and mib * MIB)
    between = "-" if word == "kunlun" else "-devices-"
    assert vendor.allocated[0] == f"{assigned}{between}allocated"
    assert (vendor.to_allocate or (None,))[0] == (f"{assigned}-devices-to-allocate" if keys == "both" else None)


def test_the_table_has_no_other_rows():
    assert [vendor.word for vendor in VENDORS] == [row[0] for row in ROWS]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_every_name_leads_back_to_its_row_alone(vendor):
    for key in (*vendor.registers, *vendor.allocated, *vendor.to_allocate):
        assert BY_ANNOTATION[key] is vendor
    for resource in vendor.resources:
        assert vendor_by_resource(resource) is vendor


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_quotas_limit_memory_and_cores_but_not_the_count(vendor):
    assert set(vendor.quotas) == set(vendor.resources) - {vendor.count, vendor.memory_percentage}


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor.word)
def test_devices_are_registered_or_counted(vendor):
    assert (vendor.gpus is None) == bool(vendor.registers) == (vendor.registration != "capacity")


def test_keys_of_the_first_releases_are_known():
    for key in ("4pd.io/node-nvidia-register", "4pd.io/vgpu-ids-new", "4pd.io/devices-to-allocate"):
        assert BY_ANNOTATION[key].word == "NVIDIA"


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb.shared"])
def test_gpus_that_nvidias_own_plugin_divides_are_devices_too(name):
    assert vendor_by_resource(name).word == "NVIDIA"


@pytest.mark.parametrize("name", ["cpu", "nvidia.com/gpux", "nvidia.com/priority", "example.com/gpu.shared", ""])
def test_other_resources_are_nobodys(name):
    assert vendor_by_resource(name) is None


def test_other_annotations_and_words_are_nobodys():
    assert "hami.io/node-handshake" not in BY_ANNOTATION
    assert "nvidia" not in BY_WORD
