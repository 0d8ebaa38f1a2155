"""The score is the seed's formula over the window's means, and says what it was held against."""

from math import inf, isclose, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuscope.knowledge.power_limits import factory_limit
from vgpuscope.logic.fleet.scoring import ScoreWeights, Thresholds, measured_value, score, status, tenant_score
from vgpuscope.model.analysis import Stat, Term

GIB = 1024**3
ratios = st.floats(0, 1)


def stat(samples):
    return Stat(mean=sum(samples) / len(samples), max=max(samples), samples=len(samples))


TERMS = ("gpu_util", "mem_copy", "mem_used", "mem_total", "power", "power_limit")


def terms(*samples):
    """Terms in this order, each by its samples; None and what is not given: not measured."""
    return {name: stat(given) for name, given in zip(TERMS, samples, strict=False) if given is not None}


def points(found, name):
    return next(term.points for term in found.terms if term.name == name)


def reference(found, name="power"):
    return next(term.reference for term in found.terms if term.name == name)


def seeds_score(*, util, copy, used, total, power, watts):
    """The formula as the seed computes it, from raw samples in its units: percent, MiB, watts."""

    def mean(xs):
        return sum(xs) / len(xs)

    memory = min(mean(used) / mean(total), 1)
    return 100 * (0.5 * mean(util) / 100 + 0.2 * mean(copy) / 100 + 0.2 * memory + 0.1 * min(mean(power) / watts, 1))


samples = st.lists(st.integers(0, 100), min_size=1, max_size=20)


@given(util=samples, copy=samples, used=st.lists(st.integers(0, 90_000), min_size=1, max_size=20), power=samples)
def test_the_score_is_the_seeds(util, copy, used, power):
    watts = [6 * p for p in power]
    found = score(
        terms(
            [u / 100 for u in util], [c / 100 for c in copy], [u * 2**20 for u in used], [80_000 * 2**20], watts, [400]
        ),
        model="",
        weights=ScoreWeights(),
    )
    assert isclose(
        found.value, seeds_score(util=util, copy=copy, used=used, total=[80_000], power=watts, watts=400), abs_tol=1e-9
    )
    assert found.confidence == 1


def test_a_model_that_nobody_knows_has_the_seeds_250_watts():
    found = score(terms([0.95], [0.5], [40], [80], [125]), model="Card of the future", weights=ScoreWeights())
    assert isclose(found.value, 100 * (0.5 * 0.95 + 0.2 * 0.5 + 0.2 * 0.5 + 0.1 * 0.5))
    assert reference(found) == "250 W (default)"


def test_the_gpus_own_limit_goes_before_the_table_and_the_table_before_the_default():
    gpu = terms([0.0], [0.0], [0], [80], [200])
    by_table = score(gpu, model="NVIDIA A100-SXM4-80GB", weights=ScoreWeights())
    by_metric = score(
        {**gpu, "power_limit": Stat(mean=500.0, samples=1)}, model="NVIDIA A100-SXM4-80GB", weights=ScoreWeights()
    )
    assert (points(by_table, "power"), reference(by_table)) == (5.0, "400 W (table: NVIDIA A100-SXM4-80GB)")
    assert (points(by_metric, "power"), reference(by_metric)) == (4.0, "limit 500 W (metric)")


@given(util=ratios, copy=ratios, used=ratios)
def test_a_missing_term_gives_its_weight_to_the_others(util, copy, used):
    found = score(terms([util], [copy], [used * GIB], [GIB]), model="", weights=ScoreWeights())
    assert isclose(found.value, 100 * (0.5 * util + 0.2 * copy + 0.2 * used) / 0.9, abs_tol=1e-9)
    assert isclose(found.confidence, 0.9)


def test_memory_without_a_total_is_missing_unless_a_default_is_given():
    gpu = terms([0.5], None, [GIB])
    assert points(score(gpu, model="", weights=ScoreWeights()), "mem_used") is None
    assumed = score(gpu, model="", weights=ScoreWeights(), default_memory=2 * GIB)
    assert isclose(assumed.value, 100 * (0.5 * 0.5 + 0.2 * 0.5) / 0.7)
    assert reference(assumed, "mem_used") == "2 GiB (default)"


def test_memory_and_power_beyond_their_bounds_count_as_full():
    assert isclose(score(terms([1.0], None, [9], [8], [500], [400]), model="", weights=ScoreWeights()).value, 100)


def test_nothing_measured_has_no_score():
    found = score({}, model="NVIDIA L4", weights=ScoreWeights())
    assert (found.value, found.confidence) == (None, 0.0)
    assert [term.value for term in found.terms] == [None] * 4


@given(copy=ratios, used=ratios, watts=st.floats(0, 400))
def test_memory_traffic_and_power_alone_are_no_score_but_are_listed(copy, used, watts):
    found = score(terms(None, [copy], [used * GIB], [GIB], [watts], [400]), model="", weights=ScoreWeights())
    assert (found.value, found.confidence) == (None, 0.0)
    assert [term.value for term in found.terms] == [None, copy, pytest.approx(used), watts / 400]


@pytest.mark.parametrize("signal", ["engine_active", "sm_active"])
def test_where_utilisation_is_not_measured_a_profiling_metric_stands_for_it(signal):
    found = score({signal: stat([0.6]), "mem_copy": stat([0.1])}, model="", weights=ScoreWeights(), expected=1)
    assert isclose(found.value, 100 * (0.5 * 0.6 + 0.2 * 0.1) / 0.7)
    assert isclose(found.confidence, 0.7)
    assert "activity" in reference(found, "gpu_util")


def test_a_tenants_score_is_its_own_work_and_its_memory_of_the_whole_gpu():
    mine: dict[Term, Stat] = {"process_sm": stat([0.7]), "mem_used": stat([20 * GIB]), "mem_total": stat([20 * GIB])}
    found = tenant_score(mine, total=stat([80 * GIB]), weights=ScoreWeights(), default_memory=None, expected=1)
    assert isclose(found.value, 100 * (0.5 * 0.7 + 0.2 * 0.25) / 0.7)
    without: dict[Term, Stat] = {"mem_used": stat([20 * GIB])}
    assert tenant_score(without, total=None, weights=ScoreWeights(), default_memory=None, expected=1).value is None


def test_only_what_weighs_nothing_has_no_score():
    assert score(terms([1.0]), model="", weights=ScoreWeights(gpu_util=0)).value is None


@given(st.sampled_from((nan, inf, -inf, -1.0, 2147483632.0, None)))
def test_what_cannot_be_true_was_not_measured(bad):
    gpu = terms([0.4], [0.1], [GIB], [4 * GIB], [100], [400])
    without = {name: stat for name, stat in gpu.items() if name != "gpu_util"}
    spoilt = {**gpu, "gpu_util": Stat(mean=bad, samples=9)}
    assert score(spoilt, model="", weights=ScoreWeights()) == score(without, model="", weights=ScoreWeights())


def test_a_total_or_a_limit_of_zero_is_not_divided_by():
    found = score(terms([0.5], [0.5], [GIB], [0], [100], [0]), model="", weights=ScoreWeights())
    assert points(found, "mem_used") is None
    assert reference(found) == "250 W (default)"


@given(st.floats(0.001, 1000), ratios, ratios)
def test_only_the_proportions_of_weights_count(factor, util, copy):
    gpu = terms([util], [copy], [1], [2], [100])
    heavy = ScoreWeights(gpu_util=0.5 * factor, mem_copy=0.2 * factor, mem_used=0.2 * factor, power=0.1 * factor)
    plain = score(gpu, model="", weights=ScoreWeights()).value
    assert isclose(score(gpu, model="", weights=heavy).value, plain, abs_tol=1e-9)


@given(util=ratios, copy=ratios, power=st.floats(0, 1000), used=ratios)
def test_a_score_lies_within_0_and_100_and_is_the_sum_of_its_points(util, copy, power, used):
    found = score(terms([util], [copy], [used * GIB], [GIB], [power]), model="Tesla T4", weights=ScoreWeights())
    assert -1e-9 <= found.value <= 100 + 1e-9
    assert isclose(found.value, sum(term.points for term in found.terms), abs_tol=1e-9)


def test_thin_coverage_lowers_the_confidence():
    gpu: dict[Term, Stat] = {"gpu_util": Stat(mean=0.5, samples=10), "mem_copy": Stat(mean=0.5, samples=20)}
    assert isclose(score(gpu, model="", weights=ScoreWeights(), expected=20).confidence, 0.5 * 0.5 + 0.2)


@pytest.mark.parametrize("bad", [nan, inf, -0.1])
@pytest.mark.parametrize("name", ["gpu_util", "mem_copy", "mem_used", "power"])
def test_a_weight_that_is_no_weight_is_refused(name, bad):
    with pytest.raises(ValueError, match="weight"):
        ScoreWeights(**{name: bad})


def test_all_weights_zero_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        ScoreWeights(gpu_util=0, mem_copy=0, mem_used=0, power=0)


@pytest.mark.parametrize("bad", [{"low": 5}, {"high": 15}, {"idle": -1}, {"high": 101}, {"idle": nan}])
def test_thresholds_that_do_not_rise_are_refused(bad):
    with pytest.raises(ValueError, match="rise"):
        Thresholds(**bad)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "idle"),
        (9.94, "idle"),
        (9.96, "low"),  # shown as 10.0
        (9.999999999999998, "low"),  # 10, but for the last bits of a sum
        (10, "low"),
        (19.94, "low"),
        (19.96, "normal"),  # shown as 20.0, which is not below the threshold
        (20, "normal"),
        (69.94, "normal"),
        (70, "high"),
        (100, "high"),
        (None, "unknown"),
        (nan, "unknown"),
    ],
)
def test_a_bound_belongs_to_the_upper_status(value, said):
    assert status(value, Thresholds()) == said


def test_the_status_follows_the_configured_thresholds():
    assert status(50, Thresholds(idle=1, low=2, high=50)) == "high"


def test_the_measured_score_leaves_out_power_held_against_a_guess():
    guessed, known = terms([0.5], None, None, None, [70]), terms([0.5], None, None, None, [70], [70])
    assert measured_value(score(guessed, model="Tesla T4", weights=ScoreWeights()), guessed) == 50
    assert measured_value(score(known, model="", weights=ScoreWeights()), known) > 50


@pytest.mark.parametrize(
    ("model", "watts"),
    [
        ("Tesla T4", 70),
        ("NVIDIA L4", 72),
        ("NVIDIA L40", 300),
        ("NVIDIA L40S", 350),
        ("NVIDIA A10", 150),
        ("NVIDIA A10G", 300),
        ("NVIDIA A100-SXM4-80GB", 400),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 400),
        ("A100-PCIE-40GB", 250),
        ("NVIDIA A100 80GB PCIe", 300),
        ("NVIDIA H100 PCIe", 350),
        ("NVIDIA H100 80GB HBM3", 700),
        ("NVIDIA H100 NVL", 400),
        ("NVIDIA H200", 700),
        ("NVIDIA B200", 1000),
        ("Tesla V100-SXM2-32GB", 300),
        ("Tesla V100-PCIE-16GB", 250),
        ("NVIDIA GeForce RTX 3090 Ti", 450),
        ("NVIDIA GeForce RTX 3090", 350),
    ],
)
def test_known_models_have_their_data_sheets_limit(model, watts):
    assert factory_limit(model) == watts


@pytest.mark.parametrize(
    "model",
    [
        "",
        "NVIDIA H100",  # 350, 400 or 700
        "NVIDIA A100",
        "NVIDIA GH200 480GB",  # what its builder sets
        "GRID A100-10C",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A1000",
        "Ascend910B",
    ],
)
def test_a_model_that_is_not_certain_has_no_limit(model):
    assert factory_limit(model) is None
