import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cputime import seconds
from tests.paths import TESTS
from vgpuscope.formats.hami.register import pair_scores, physical_memory, registered_devices
from vgpuscope.knowledge.vendors import VENDORS
from vgpuscope.model.allocation import MigProfile, RegisteredDevice
from vgpuscope.model.errors import AnnotationMalformed
from vgpuscope.model.quantity import MIB

NVIDIA = "hami.io/node-nvidia-register"
DCU = "hami.io/node-dcu-register"
METAX = "metax-tech.com/node-gpu-devices"
ENFLAME = "enflame.com/gcu-drs-capacity"
A100 = "GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76"

JSON_ONE = (
    '[{"id":"GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76","count":10,"devmem":81920,"devcore":100,'
    '"type":"NVIDIA A100-SXM4-80GB","mode":"hami-core","health":true}]'
)
JSON_TWO = (
    '[{"id":"GPU-03cd1cf6-11f6-5ecc-feb0-af07406e1838","index":1,"count":10,"devmem":15360,"devcore":100,'
    '"type":"NVIDIA-Tesla T4","numa":1,"mode":"hami-core","health":true},'
    '{"id":"GPU-e290caca-2f0c-9582-acab-67a142b61ffa","count":10,"devmem":15360,"devcore":100,'
    '"type":"NVIDIA-Tesla T4","mode":"hami-core"}]'
)
JSON_MIG = (
    '[{"id":"GPU-1b9c9f38-5a0e-4f0e-8d1e-2f7c1f7f0c11","count":7,"devmem":81920,"devcore":100,'
    '"type":"NVIDIA A100-SXM4-80GB","mode":"mig","migProfiles":[{"name":"1g.10gb","memoryMB":9728,"core":15,'
    '"sliceCount":1,"placements":[{"start":0,"size":1},{"start":1,"size":1}]}],"health":true}]'
)
TEXT_SEVEN = (
    "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
    "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"
)
TEXT_NINE = f"{A100},10,81920,100,NVIDIA-NVIDIA A100-SXM4-80GB,0,true,0,hami-core:"
TEXT_DCU = "DCU-0,4,65536,100,DCU-K100_AI,0,true,0,hami-core:DCU-1,4,65536,100,DCU-K100_AI,1,false,1,hami-core:"


def read(annotations=None, **capacity):
    devices, reasons = registered_devices(annotations or {}, capacity, "n1")
    assert reasons == ()
    return devices


def refused(annotations, capacity=None):
    devices, reasons = registered_devices(annotations, capacity or {}, "n1")
    assert devices == ()
    return reasons


def capacity_of(resource, amount, **more):
    return registered_devices({}, {resource: amount, **more}, "n1")[0]


def test_a_json_device_has_all_its_fields():
    assert read({NVIDIA: JSON_ONE}) == (
        RegisteredDevice(
            id=A100,
            vendor="NVIDIA",
            index=0,
            slots=10,
            memory=81920 * MIB,
            physical=81920 * MIB,
            cores=100,
            type="NVIDIA A100-SXM4-80GB",
            numa=0,
            mode="hami-core",
            healthy=True,
        ),
    )


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ("NVIDIA A100-SXM4-80GB", 80),
        ("NVIDIA H100 80GB HBM3", 80),
        ("Tesla V100-SXM2-16GB", 16),
        ("NVIDIA-Tesla T4", None),
        ("NVIDIA H200", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 40),
        ("", None),
    ],
)
def test_a_models_name_may_say_how_much_memory_the_gpu_itself_has(model, gib):
    assert physical_memory(model) == (gib and gib * 1024 * MIB)


def test_what_json_leaves_out_is_zero_and_unhealthy():
    first, second = read({NVIDIA: JSON_TWO})
    assert (first.index, first.numa, first.healthy) == (1, 1, True)
    assert (second.index, second.numa, second.healthy) == (0, 0, False)


def test_a_gpu_in_mig_mode_is_read_with_whatever_else_it_says():
    (gpu,) = read({NVIDIA: JSON_MIG})
    assert (gpu.mode, gpu.slots, gpu.healthy) == ("mig", 7, True)


def test_keys_of_other_releases_do_no_harm():
    extra = {"devicevendor": "NVIDIA", "custominfo": {"a": [1]}, "migtemplate": None, "devicepairscore": {}}
    assert read({NVIDIA: json.dumps([{"id": "GPU-a"} | extra])})[0].id == "GPU-a"


def test_seven_fields_imply_the_first_index_and_hami_core():
    first, second = read({NVIDIA: TEXT_SEVEN})
    assert first == RegisteredDevice(
        id="GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec",
        vendor="NVIDIA",
        slots=10,
        memory=32768 * MIB,
        physical=32768 * MIB,
        cores=100,
        type="NVIDIA-Tesla V100-PCIE-32GB",
        mode="hami-core",
        healthy=True,
    )
    assert second.id == "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"


def test_nine_fields_say_index_and_mode():
    (gpu,) = read({NVIDIA: TEXT_NINE})
    assert (gpu.type, gpu.index, gpu.mode) == ("NVIDIA-NVIDIA A100-SXM4-80GB", 0, "hami-core")


def test_other_vendors_write_text_too():
    assert [(one.id, one.vendor, one.index, one.numa, one.healthy) for one in read({DCU: TEXT_DCU})] == [
        ("DCU-0", "DCU", 0, 0, True),
        ("DCU-1", "DCU", 1, 1, False),
    ]


@pytest.mark.parametrize("vendor", [one for one in VENDORS if one.registration in {"json", "text"}])
def test_json_and_text_are_told_apart_for_every_vendor(vendor):
    (key, *_) = vendor.registers
    (one,) = read({key: ' [{"id":"a","devmem":2}]'})
    (other,) = read({key: " a,1,2,3,t,0,true:\n"})
    assert (one.vendor, one.memory) == (other.vendor, other.memory) == (vendor.word, 2 * MIB)


def test_the_key_of_the_first_releases_is_understood_and_the_newer_one_wins():
    assert len(read({"4pd.io/node-nvidia-register": TEXT_SEVEN})) == 2
    assert [one.id for one in read({"4pd.io/node-nvidia-register": TEXT_SEVEN, NVIDIA: JSON_ONE})] == [A100]


def test_scaled_gpus_keep_their_size():
    (gpu,) = read({NVIDIA: '[{"id":"a","devmem":163840,"devcore":200}]'})
    assert (gpu.memory, gpu.cores) == (163840 * MIB, 200)


def test_a_cordoned_gpu_is_marked():
    cordon = "GPU-e290caca-2f0c-9582-acab-67a142b61ffa, ,GPU-unknown"
    assert [one.cordoned for one in read({NVIDIA: JSON_TWO, "hami.io/device-cordon": cordon})] == [False, True]


def test_hamis_own_nodes_are_read():
    text = (TESTS / "fixtures/cluster/hami_scheduler_inputs.json").read_text()
    nodes = {
        node["name"]: [
            f"{one.id} {one.slots} {one.memory // MIB} {one.numa} {one.mode}{' sick' * (not one.healthy)}"
            + " cordoned" * one.cordoned
            for one in read(node["annotations"])
        ]
        for node in json.loads(text)["nodes"]
    }
    assert nodes["kick"] == nodes["kick2"] == nodes["node-cpu"] == []
    assert nodes["node-a"] == [
        "GPU-aaaaaaaa-0000-0000-0000-000000000000 10 81920 0 hami-core",
        "GPU-aaaaaaaa-0000-0000-0000-000000000001 10 81920 1 hami-core",
    ]
    assert nodes["node-m"] == ["GPU-m0 7 81920 0 mig"]
    assert nodes["node-x"] == [
        "GPU-x0 10 40960 0 hami-core",
        "GPU-x1 10 40960 0 hami-core sick",
        "GPU-x2 10 40960 0 hami-core cordoned",
    ]
    assert len(nodes["node-t"]) == 4


def test_metax_registers_in_its_own_words():
    text = json.dumps(
        [
            {"uuid": "GPU-m", "totalDevCount": 16, "totalCompute": 100, "totalVRam": 65536, "numa": 1, "healthy": True}
            | {"bdf": "0000:01:00.0", "model": "MXC500", "qosPolicy": "best-effort", "linkZone": 1},
            {"uuid": "GPU-n", "totalDevCount": 16},
        ]
    )
    one, sick = read({METAX: text})
    assert one == RegisteredDevice(
        id="GPU-m",
        vendor="Metax-SGPU",
        slots=16,
        memory=65536 * MIB,
        cores=100,
        type="Metax-SGPU",
        numa=1,
        mode="",
        healthy=True,
    )
    assert (sick.index, sick.healthy) == (1, False)


def test_enflame_gpus_have_slices_and_the_memory_of_their_largest_profile():
    profiles = {"1g.6gb": "0", "3g.20gb": "1", "6g.40gb": "2"}
    devices = [{"index": "0", "minor": "0", "capacity": 6}, {"index": "3", "minor": "3", "capacity": "6"}]
    found = read({ENFLAME: json.dumps({"devices": devices, "profiles": profiles})})
    assert [(one.id, one.index, one.slots, one.memory // MIB, one.cores) for one in found] == [
        ("n1-enflame-drs-0", 0, 6, 40960, 100),
        ("n1-enflame-drs-3", 3, 6, 40960, 100),
    ]


@pytest.mark.parametrize(
    ("capacity", "gpus"),
    [
        (
            {"cambricon.com/mlu.smlu.vcore": 200, "cambricon.com/mlu.smlu.vmemory": 192},
            ["n1-cambricon-mlu-0 MLU 100 24576 100 0", "n1-cambricon-mlu-1 MLU 100 24576 100 0"],
        ),
        ({"metax-tech.com/gpu": 1}, ["n1-metax-0 Metax-GPU 1 65536 100 0"]),
        (
            {"mthreads.com/sgpu-core": 32, "mthreads.com/sgpu-memory": 192},
            ["n1-mthreads-0 Mthreads 100 49152 16 0", "n1-mthreads-1 Mthreads 100 49152 16 0"],
        ),
        ({"enflame.com/gcu": 1}, ["n1-GCU-0 GCU 1 0 100 0"]),
        ({"kunlunxin.com/xpu": 2}, ["n1-kunlun-0 kunlun 1 98304 100 0", "n1-kunlun-1 kunlun 1 98304 100 1"]),
        ({"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}, ["n1-AWSNeuron-0 AWSNeuron 2 0 3 0"]),
        ({"aws.amazon.com/neuron": 1}, ["n1-AWSNeuron-0 AWSNeuron 0 0 0 0"]),
        ({"nvidia.com/gpu": 80}, []),
        ({"kunlunxin.com/xpu": 0, "cambricon.com/mlu.smlu.vcore": 0}, []),
    ],
)
def test_gpus_that_nobody_registers_are_counted_from_capacity(capacity, gpus):
    assert [
        f"{one.id} {one.vendor} {one.slots} {one.memory // MIB} {one.cores} {one.numa}"
        for one in read({}, **capacity)
        if one.healthy
    ] == gpus


BAD = {
    NVIDIA: [
        "nonsense",
        "[",
        "[]x",
        "{}",
        "[7]",
        '[{"index":1}]',
        '[{"id":""}]',
        '[{"id":"a","devmem":"8"}]',
        '[{"id":"a","devmem":1e400}]',
        '[{"id":"a","count":99999999999}]',
        '[{"id":"a","health":"true"}]',
        "a,1,2,3,t,0:",
        "a,1,2,3,t,0,true,0:",
        "a,1,2,3,t,0,true,0,m,x:",
        "a,1,2,3,t,0,yes:",
        "a,1,2,٣,t,0,true:",
        "a,1,9999999999,3,t,0,true:",
        ",1,2,3,t,0,true:",
        f"{'a' * 254},1,2,3,t,0,true:",
        '[{"id":"' + "a" * 254 + '"}]',
        "[" * 100_000,
        "\ud800",
        '["\ud800"]',
    ],
    METAX: ["x", "{}", "[1]", '[{"uuid":""}]', '[{"totalVRam":1}]', '[{"uuid":"a","totalVRam":"1"}]'],
    ENFLAME: [
        "[]",
        "{}",
        '{"devices":[{"index":"0","capacity":6}],"profiles":{}}',
        '{"devices":[{"index":"0","capacity":6}],"profiles":{"big":"0"}}',
        '{"devices":[{"index":"x","capacity":6}],"profiles":{"6g.40gb":"2"}}',
        '{"devices":[{"index":"0","capacity":"-6"}],"profiles":{"6g.40gb":"2"}}',
    ],
}


@pytest.mark.parametrize(("key", "text"), [(key, text) for key, texts in BAD.items() for text in texts])
def test_a_malformed_annotation_costs_its_vendor_and_is_named(key, text):
    devices, reasons = registered_devices({key: text, DCU: TEXT_DCU}, {"metax-tech.com/gpu": 1}, "n1")
    assert [one.vendor for one in devices] == ["DCU", "DCU", "Metax-GPU"]
    assert [reason.startswith(f"{key}: ") and len(reason) < 300 for reason in reasons] == [True]


# Go's encoding/json, with which HAMi v2.10.0 reads a registration (pkg/device/devices.go UnMarshalNodeDevices), takes
# null for the zero value, keys in any case, and negative numbers. It took all of these, and the other GPUs of the node.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[{"id":"a","numa":null,"count":null,"health":true}]', ("a", 0, 0, True)),
        ('[{"ID":"a","Count":4,"HEALTH":true}]', ("a", 4, 0, True)),
        ('[{"id":"a","count":4,"NUMA":-2,"health":true,"NodeName":"x","Size":[{}]}]', ("a", 4, -2, True)),
        ('[{"id":"a","count":4,"devmem":-1,"health":true}]', ("a", 4, 0, False)),
    ],
)
def test_what_go_takes_costs_no_other_gpu_of_the_node(text, expected):
    one, other = read({NVIDIA: text[:-1] + ',{"id":"b","count":10,"health":true}]'})
    assert (one.id, one.slots, one.numa, one.healthy) == expected
    assert (other.id, other.slots, other.healthy) == ("b", 10, True)


@pytest.mark.parametrize(
    "text", ['[{"id":"a","devmem":-1,"health":true}]', "a,-1,2,3,t,0,true:", '[{"id":"a","devcore":-5,"health":true}]']
)
def test_a_gpu_with_an_amount_below_zero_is_not_healthy_and_holds_nothing(text):
    (one,) = read({NVIDIA: text})
    assert min(one.slots, one.memory, one.cores) >= 0
    assert not one.healthy


def test_profiles_are_read_in_any_case_too():
    (odd,), (plain,) = read({NVIDIA: JSON_MIG.replace("memoryMB", "MemoryMb")}), read({NVIDIA: JSON_MIG})
    assert odd.profiles == plain.profiles


@pytest.mark.parametrize("text", ["", " ", "[]", ":", "::"])
def test_nothing_registered_is_no_fault(text):
    assert read({NVIDIA: text}) == ()


def test_a_gpu_that_comes_twice_is_taken_once_and_named():
    devices, (reason,) = registered_devices({NVIDIA: TEXT_NINE * 3}, {}, "n1")
    assert [one.id for one in devices] == [A100]
    assert reason == f"NVIDIA: 2 devices are registered twice, {A100} among them"


def test_a_capacity_that_no_node_has_is_a_fault():
    (reason,) = refused({}, {"kunlunxin.com/xpu": 2**60})
    assert "kunlunxin.com/xpu" in reason


def test_absurd_capacities_beside_a_gpu_stay_bounded():
    (one,) = capacity_of("mthreads.com/sgpu-core", 1, **{"mthreads.com/sgpu-memory": 2**62})
    assert one.memory < 2**52
    (one,) = capacity_of("aws.amazon.com/neuron", 1, **{"aws.amazon.com/neuroncore": 2**62})
    assert one.cores < 2**32


SIZE = 256 * 1024
NOISE = {
    "colons": ":" * SIZE,
    "commas": "," * SIZE,
    "letters": "x" * SIZE,
    "brackets": "[" * SIZE,
    "digits": "1" * SIZE,
    "devices": "a,1,2,3,t,0,true:" * (SIZE // 17),
    "json devices": "[" + ",".join(f'{{"id":"{i}"}}' for i in range(SIZE // 16)) + "]",
    "braces": '{"a":' * (SIZE // 5),
    "half json": '[{"id":"' + "a" * SIZE,
}


@pytest.mark.parametrize("text", NOISE.values(), ids=NOISE)
def test_a_quarter_megabyte_of_noise_is_refused_at_once(text):
    for key in (NVIDIA, METAX, ENFLAME):
        (reason,) = refused({key: text})
        assert seconds(partial(refused, {key: text})) < 0.1
        assert len(reason) < 300


FIELDS = st.sampled_from(
    (A100, ",", ":", "[", "{", '"id"', "1", "0", "true", "NVIDIA", "-", " ", f"{A100},1,2,3,t,0,t:")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "uuid", "devmem", "index", "devices", "profiles", "capacity", "6g.40gb"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
).map(json.dumps)


@given(
    st.dictionaries(
        st.sampled_from([key for vendor in VENDORS for key in vendor.registers] + ["hami.io/device-cordon"]),
        st.text(max_size=30) | st.lists(FIELDS, max_size=20).map("".join) | JSON,
        max_size=4,
    ),
    st.dictionaries(
        st.sampled_from([name for vendor in VENDORS for name in vendor.resources]), st.integers(0, 2**63), max_size=4
    ),
)
def test_any_node_is_read_or_named(annotations, capacity):
    devices, reasons = registered_devices(annotations, capacity, "n1")
    assert len({one.id for one in devices}) == len(devices)
    assert all(one.id and one.memory >= 0 and one.cores >= 0 and one.slots >= 0 for one in devices)
    assert all(len(reason) < 400 for reason in reasons)


# --- MIG profiles and links -------------------------------------------------------------------------------------------


def test_the_profiles_of_a_gpu_in_mig_mode_have_memory_cores_slices_and_placements():
    text = (
        '[{"id":"GPU-m","count":7,"devmem":81920,"devcore":100,"type":"NVIDIA A100-SXM4-80GB","mode":"mig",'
        '"migProfiles":[{"name":"1g.10gb","memoryMB":9728,"core":15,"sliceCount":1,"placements":[{"size":1},'
        '{"start":1,"size":1}]},{"name":"7g.79gb"}],"health":true}]'
    )
    ((gpu,), reasons) = registered_devices({"hami.io/node-nvidia-register": text}, {}, "n")
    assert not reasons
    assert gpu.profiles == (
        MigProfile(name="1g.10gb", memory=9728 * MIB, cores=15, slices=1, placements=((0, 1), (1, 1))),
        MigProfile(name="7g.79gb", memory=0, cores=0),
    )


@pytest.mark.parametrize("profiles", ["null", "[]"])
def test_a_gpu_without_profiles_has_none(profiles):
    text = f'[{{"id":"GPU-m","mode":"mig","migProfiles":{profiles}}}]'
    ((gpu,), reasons) = registered_devices({"hami.io/node-nvidia-register": text}, {}, "n")
    assert (gpu.profiles, reasons) == ((), ())


def test_pair_scores_are_read_for_each_gpu():
    text = '[{"uuid":"GPU-a","score":{"GPU-b":200,"GPU-c":20}},{"uuid":"GPU-b"}]'
    assert pair_scores({"hami.io/node-nvidia-score": text}) == {"GPU-a": {"GPU-b": 200, "GPU-c": 20}, "GPU-b": {}}
    assert pair_scores({}) == pair_scores({"hami.io/node-nvidia-score": " "}) == {}


@pytest.mark.parametrize("text", ["x", "{}", '[{"score":{}}]', '[{"uuid":"a","score":{"b":"c"}}]', "[" * 5000])
def test_malformed_pair_scores_are_named(text):
    with pytest.raises(AnnotationMalformed, match="node-nvidia-score"):
        pair_scores({"hami.io/node-nvidia-score": text})
