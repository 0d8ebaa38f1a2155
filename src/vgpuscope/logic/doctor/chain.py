"""The chain of checks, from the driver to the history, in the order in which a fault in one spoils the next."""

from typing import Final, NamedTuple

from vgpuscope.logic.doctor import (
    agents,
    analyzer,
    driver,
    freshness,
    labels,
    reclaim,
    regions,
    rights,
    scheduler,
    scrape,
    signals,
    units,
)
from vgpuscope.logic.doctor.judging import Judge, skipped
from vgpuscope.model.doctor import Absent, Check, CheckOutcome, DoctorFacts, Missing, Stage


class DoctorCheck(NamedTuple):
    """One check: the code that names what it can find, where it belongs, and who judges."""

    code: str
    stage: Stage
    judge: Judge


CHAIN: Final = (
    DoctorCheck("DRIVER_LIBRARY_MISSING", "driver", driver.library_missing),
    DoctorCheck("DRIVER_FAILED", "driver", driver.driver_failed),
    DoctorCheck("DRIVER_HUNG", "driver", driver.driver_hung),
    DoctorCheck("NO_GPU", "driver", driver.no_gpu),
    DoctorCheck("GPU_UNHEALTHY", "driver", driver.unhealthy),
    DoctorCheck("HOST_PID_MISSING", "driver", driver.host_pid_missing),
    DoctorCheck("MIG_WITHOUT_PROFILING", "driver", driver.mig_without_profiling),
    DoctorCheck("GPM_UNSUPPORTED", "driver", signals.gpm_unsupported),
    DoctorCheck("GPM_REFUSED", "driver", signals.gpm_refused),
    DoctorCheck("GPM_HUNG", "driver", signals.gpm_hung),
    DoctorCheck("GPM_DISTURBS_MEMORY", "driver", signals.gpm_disturbs_memory),
    DoctorCheck("CONTAINER_SM_ZERO", "driver", driver.container_sm_zero),
    DoctorCheck("REGIONS_UNREADABLE", "regions", regions.unreadable),
    DoctorCheck("REGIONS_NOT_MOUNTED", "regions", regions.not_mounted),
    DoctorCheck("REGION_LAYOUT_UNKNOWN", "regions", regions.layout_unknown),
    DoctorCheck("REGION_NOT_MADE", "regions", regions.not_made),
    DoctorCheck("WHOLE_GPU_UNSEEN", "regions", regions.whole_gpu_unseen),
    DoctorCheck("MEMORY_OVER_LIMIT", "regions", regions.over_limit),
    DoctorCheck("REGIONS_ORPHANED", "regions", regions.orphaned),
    DoctorCheck("AGENT_DOWN", "agent", agents.down),
    DoctorCheck("WRONG_SERVICE", "agent", agents.wrong_service),
    DoctorCheck("AGENT_SAMPLE_OLD", "agent", agents.sample_old),
    DoctorCheck("PODS_UNKNOWN", "agent", agents.pods_unknown),
    DoctorCheck("PODRESOURCES_DOWN", "agent", agents.podresources_down),
    DoctorCheck("CLAIMS_UNKNOWN", "agent", agents.claims_unknown),
    DoctorCheck("PROC_UNREADABLE", "agent", agents.proc_unreadable),
    DoctorCheck("DCGM_NO_ANSWER", "agent", signals.dcgm_no_answer),
    DoctorCheck("DCGM_NOT_FOUND", "agent", signals.dcgm_not_found),
    DoctorCheck("DCGM_WITHOUT_FIELDS", "agent", signals.dcgm_without_fields),
    DoctorCheck("DCGM_UNUSABLE", "agent", signals.dcgm_unusable),
    DoctorCheck("CGROUPS_ABSENT", "agent", signals.cgroups_absent),
    DoctorCheck("CGROUPS_UNREADABLE", "agent", signals.cgroups_unreadable),
    DoctorCheck("CGROUPS_UNKNOWN", "agent", signals.cgroups_unknown),
    DoctorCheck("COMPONENT_NOT_RUNNING", "agent", agents.not_running),
    DoctorCheck("EXPORTER_RESTARTS", "agent", agents.restarts),
    DoctorCheck("VERSIONS_DIFFER", "agent", agents.versions_differ),
    DoctorCheck("PROMETHEUS_DOWN", "scrape", scrape.prometheus_down),
    DoctorCheck("PROMETHEUS_WRONG_SERVICE", "scrape", scrape.wrong_prometheus),
    DoctorCheck("PROMETHEUS_EMPTY", "scrape", scrape.empty),
    DoctorCheck("GPU_METRICS_ABSENT", "scrape", scrape.gpu_metrics_absent),
    DoctorCheck("TARGETS_DOWN", "scrape", scrape.targets_down),
    DoctorCheck("NODES_WITHOUT_AGENT", "scrape", scrape.nodes_without_agent),
    DoctorCheck("SCRAPE_INTERVAL_LONG", "scrape", scrape.interval_long),
    DoctorCheck("HAMI_BESIDE_OURS", "scrape", scrape.hami_beside_ours),
    DoctorCheck("SCRAPED_TWICE", "scrape", scrape.scraped_twice),
    DoctorCheck("REPLICAS_DOUBLE", "scrape", scrape.replicas_double),
    DoctorCheck("CLUSTERS_WITHOUT_LABEL", "scrape", scrape.clusters_without_label),
    DoctorCheck("RULE_NAMES_UNKNOWN", "scrape", scrape.rule_names_unknown),
    DoctorCheck("HONOR_LABELS_OFF", "labels", labels.honor_labels_off),
    DoctorCheck("POD_LABELS_MISSING", "labels", labels.pod_labels_missing),
    DoctorCheck("LABELS_FLAPPING", "labels", labels.flapping),
    DoctorCheck("CONTAINERS_NAMELESS", "labels", labels.agent_containers_nameless),
    DoctorCheck("SHARED_SAME_NUMBER", "labels", labels.shared_same_number),
    DoctorCheck("HOSTNAME_IS_POD", "labels", labels.hostname_is_pod),
    DoctorCheck("CONDITION_MATCHES_NOTHING", "labels", labels.condition_matches_nothing),
    DoctorCheck("UUID_UNREADABLE", "labels", labels.uuid_unreadable),
    DoctorCheck("RATIO_SCALE_MIXED", "units", units.ratio_scale_mixed),
    DoctorCheck("DCGM_RATIO_IS_PERCENT", "units", units.dcgm_ratio_is_percent),
    DoctorCheck("UTILIZATION_ABOVE_100", "units", units.above_100),
    DoctorCheck("ABSURD_VALUE", "units", units.absurd_value),
    DoctorCheck("MIG_REPEATED", "units", units.mig_repeated),
    DoctorCheck("USED_ABOVE_ALLOCATED", "units", units.used_above_allocated),
    DoctorCheck("SERIES_OLD", "freshness", freshness.series_old),
    DoctorCheck("COMPLETED_POD_SERIES", "freshness", freshness.completed_pods),
    DoctorCheck("GHOST_ALLOCATION", "freshness", freshness.ghost_allocation),
    DoctorCheck("CLOCK_SKEW", "freshness", freshness.clock_skew),
    DoctorCheck("KUBE_API_DOWN", "rights", rights.api_down),
    DoctorCheck("RIGHTS_MISSING", "rights", rights.rights_missing),
    DoctorCheck("CREDENTIALS_REFUSED", "rights", rights.credentials_refused),
    DoctorCheck("CLUSTER_EXPORTER_MISSING", "rights", rights.cluster_exporter_missing),
    DoctorCheck("DEVICES_NOT_REGISTERED", "rights", rights.not_registered),
    DoctorCheck("FORGED_ASSIGNMENT", "rights", rights.forged_assignment),
    DoctorCheck("EXTENDER_DOWN", "scheduler", scheduler.extender_down),
    DoctorCheck("EXTENDER_NOT_READY", "scheduler", scheduler.extender_not_ready),
    DoctorCheck("EXTENDER_NO_LEADER", "scheduler", scheduler.no_leader),
    DoctorCheck("EXTENDER_NOT_ASKED", "scheduler", scheduler.not_asked),
    DoctorCheck("SCHEDULER_METRICS_DOUBLE", "scheduler", scheduler.metrics_double),
    DoctorCheck("PLUGIN_NOT_REGISTERED", "scheduler", scheduler.not_registered),
    DoctorCheck("PLUGIN_GPU_UNHEALTHY", "scheduler", scheduler.gpu_unhealthy),
    DoctorCheck("PLUGIN_LIBRARY_MISSING", "scheduler", scheduler.without_library),
    DoctorCheck("ANALYZER_DOWN", "analyzer", analyzer.down),
    DoctorCheck("ANALYZER_SOURCE_DOWN", "analyzer", analyzer.source_down),
    DoctorCheck("ANALYSES_STOPPED", "analyzer", analyzer.stopped),
    DoctorCheck("VERDICTS_UNKNOWN", "analyzer", analyzer.verdicts_unknown),
    DoctorCheck("FOLLOWER_FAILING", "analyzer", analyzer.follower_failing),
    DoctorCheck("MODEL_FAILING", "analyzer", reclaim.model_failing),
    DoctorCheck("CHANNEL_FAILING", "analyzer", reclaim.channel_failing),
    DoctorCheck("CONTROL_FAILING", "analyzer", reclaim.control_failing),
    DoctorCheck("RECLAIM_WITHOUT_HISTORY", "analyzer", reclaim.without_history),
    DoctorCheck("RECLAIM_WITHOUT_KUBE", "analyzer", reclaim.without_kube),
    DoctorCheck("RECLAIM_HELD_BACK", "analyzer", reclaim.held_back),
    DoctorCheck("HISTORY_OFF", "history", analyzer.history_off),
    DoctorCheck("HISTORY_DOWN", "history", analyzer.history_down),
    DoctorCheck("NOT_LEADER", "history", analyzer.not_leader),
)


def judged(facts: DoctorFacts) -> tuple[Check, ...]:
    """Every check, in the order of the chain."""
    return tuple(Check(code=one.code, stage=one.stage, judgement=_judgement(one.judge, facts)) for one in CHAIN)


def _judgement(judge: Judge, facts: DoctorFacts) -> CheckOutcome:
    try:
        return judge(facts)
    except Absent as e:
        return skipped(e.missing)
    except (ArithmeticError, LookupError, TypeError, ValueError) as e:  # strange facts must not end the other checks
        return skipped(Missing(fact="series", reason="internal", code="INTERNAL", detail=repr(e)))
