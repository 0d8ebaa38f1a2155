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
from vgpuscope.model.doctor import Absent, Check, DoctorFacts, Judgement, Missing, Stage


class Link(NamedTuple):
    """One check: the code that names what it can find, where it belongs, and who judges."""

    code: str
    stage: Stage
    judge: Judge


CHAIN: Final = (
    Link("DRIVER_LIBRARY_MISSING", "driver", driver.library_missing),
    Link("DRIVER_FAILED", "driver", driver.driver_failed),
    Link("DRIVER_HUNG", "driver", driver.driver_hung),
    Link("NO_GPU", "driver", driver.no_gpu),
    Link("GPU_UNHEALTHY", "driver", driver.unhealthy),
    Link("HOST_PID_MISSING", "driver", driver.host_pid_missing),
    Link("MIG_WITHOUT_PROFILING", "driver", driver.mig_without_profiling),
    Link("GPM_UNSUPPORTED", "driver", signals.gpm_unsupported),
    Link("GPM_REFUSED", "driver", signals.gpm_refused),
    Link("GPM_HUNG", "driver", signals.gpm_hung),
    Link("GPM_DISTURBS_MEMORY", "driver", signals.gpm_disturbs_memory),
    Link("CONTAINER_SM_ZERO", "driver", driver.container_sm_zero),
    Link("REGIONS_UNREADABLE", "regions", regions.unreadable),
    Link("REGIONS_NOT_MOUNTED", "regions", regions.not_mounted),
    Link("REGION_LAYOUT_UNKNOWN", "regions", regions.layout_unknown),
    Link("REGION_NOT_MADE", "regions", regions.not_made),
    Link("WHOLE_GPU_UNSEEN", "regions", regions.whole_gpu_unseen),
    Link("MEMORY_OVER_LIMIT", "regions", regions.over_limit),
    Link("REGIONS_ORPHANED", "regions", regions.orphaned),
    Link("AGENT_DOWN", "agent", agents.down),
    Link("WRONG_SERVICE", "agent", agents.wrong_service),
    Link("AGENT_SAMPLE_OLD", "agent", agents.sample_old),
    Link("PODS_UNKNOWN", "agent", agents.pods_unknown),
    Link("PODRESOURCES_DOWN", "agent", agents.podresources_down),
    Link("CLAIMS_UNKNOWN", "agent", agents.claims_unknown),
    Link("PROC_UNREADABLE", "agent", agents.proc_unreadable),
    Link("DCGM_NO_ANSWER", "agent", signals.dcgm_no_answer),
    Link("DCGM_NOT_FOUND", "agent", signals.dcgm_not_found),
    Link("DCGM_WITHOUT_FIELDS", "agent", signals.dcgm_without_fields),
    Link("DCGM_UNUSABLE", "agent", signals.dcgm_unusable),
    Link("CGROUPS_ABSENT", "agent", signals.cgroups_absent),
    Link("CGROUPS_UNREADABLE", "agent", signals.cgroups_unreadable),
    Link("CGROUPS_UNKNOWN", "agent", signals.cgroups_unknown),
    Link("COMPONENT_NOT_RUNNING", "agent", agents.not_running),
    Link("EXPORTER_RESTARTS", "agent", agents.restarts),
    Link("VERSIONS_DIFFER", "agent", agents.versions_differ),
    Link("PROMETHEUS_DOWN", "scrape", scrape.prometheus_down),
    Link("PROMETHEUS_WRONG_SERVICE", "scrape", scrape.wrong_prometheus),
    Link("PROMETHEUS_EMPTY", "scrape", scrape.empty),
    Link("GPU_METRICS_ABSENT", "scrape", scrape.gpu_metrics_absent),
    Link("TARGETS_DOWN", "scrape", scrape.targets_down),
    Link("NODES_WITHOUT_AGENT", "scrape", scrape.nodes_without_agent),
    Link("SCRAPE_INTERVAL_LONG", "scrape", scrape.interval_long),
    Link("HAMI_BESIDE_OURS", "scrape", scrape.hami_beside_ours),
    Link("SCRAPED_TWICE", "scrape", scrape.scraped_twice),
    Link("REPLICAS_DOUBLE", "scrape", scrape.replicas_double),
    Link("CLUSTERS_WITHOUT_LABEL", "scrape", scrape.clusters_without_label),
    Link("RULE_NAMES_UNKNOWN", "scrape", scrape.rule_names_unknown),
    Link("HONOR_LABELS_OFF", "labels", labels.honor_labels_off),
    Link("POD_LABELS_MISSING", "labels", labels.pod_labels_missing),
    Link("LABELS_FLAPPING", "labels", labels.flapping),
    Link("CONTAINERS_NAMELESS", "labels", labels.agent_containers_nameless),
    Link("SHARED_SAME_NUMBER", "labels", labels.shared_same_number),
    Link("HOSTNAME_IS_POD", "labels", labels.hostname_is_pod),
    Link("CONDITION_MATCHES_NOTHING", "labels", labels.condition_matches_nothing),
    Link("UUID_UNREADABLE", "labels", labels.uuid_unreadable),
    Link("RATIO_SCALE_MIXED", "units", units.ratio_scale_mixed),
    Link("DCGM_RATIO_IS_PERCENT", "units", units.dcgm_ratio_is_percent),
    Link("UTILIZATION_ABOVE_100", "units", units.above_100),
    Link("ABSURD_VALUE", "units", units.absurd_value),
    Link("MIG_REPEATED", "units", units.mig_repeated),
    Link("USED_ABOVE_ALLOCATED", "units", units.used_above_allocated),
    Link("SERIES_OLD", "freshness", freshness.series_old),
    Link("COMPLETED_POD_SERIES", "freshness", freshness.completed_pods),
    Link("GHOST_ALLOCATION", "freshness", freshness.ghost_allocation),
    Link("CLOCK_SKEW", "freshness", freshness.clock_skew),
    Link("KUBE_API_DOWN", "rights", rights.api_down),
    Link("RIGHTS_MISSING", "rights", rights.rights_missing),
    Link("CREDENTIALS_REFUSED", "rights", rights.credentials_refused),
    Link("CLUSTER_EXPORTER_MISSING", "rights", rights.cluster_exporter_missing),
    Link("DEVICES_NOT_REGISTERED", "rights", rights.not_registered),
    Link("EXTENDER_DOWN", "scheduler", scheduler.extender_down),
    Link("EXTENDER_NOT_READY", "scheduler", scheduler.extender_not_ready),
    Link("EXTENDER_NO_LEADER", "scheduler", scheduler.no_leader),
    Link("EXTENDER_NOT_ASKED", "scheduler", scheduler.not_asked),
    Link("SCHEDULER_METRICS_DOUBLE", "scheduler", scheduler.metrics_double),
    Link("PLUGIN_NOT_REGISTERED", "scheduler", scheduler.not_registered),
    Link("PLUGIN_GPU_UNHEALTHY", "scheduler", scheduler.gpu_unhealthy),
    Link("PLUGIN_LIBRARY_MISSING", "scheduler", scheduler.without_library),
    Link("ANALYZER_DOWN", "analyzer", analyzer.down),
    Link("ANALYZER_SOURCE_DOWN", "analyzer", analyzer.source_down),
    Link("ANALYSES_STOPPED", "analyzer", analyzer.stopped),
    Link("VERDICTS_UNKNOWN", "analyzer", analyzer.verdicts_unknown),
    Link("FOLLOWER_FAILING", "analyzer", analyzer.follower_failing),
    Link("MODEL_FAILING", "analyzer", reclaim.model_failing),
    Link("CHANNEL_FAILING", "analyzer", reclaim.channel_failing),
    Link("RECLAIM_WITHOUT_HISTORY", "analyzer", reclaim.without_history),
    Link("RECLAIM_WITHOUT_KUBE", "analyzer", reclaim.without_kube),
    Link("RECLAIM_HELD_BACK", "analyzer", reclaim.held_back),
    Link("HISTORY_OFF", "history", analyzer.history_off),
    Link("HISTORY_DOWN", "history", analyzer.history_down),
    Link("NOT_LEADER", "history", analyzer.not_leader),
)


def judged(facts: DoctorFacts) -> tuple[Check, ...]:
    """Every check, in the order of the chain."""
    return tuple(Check(code=one.code, stage=one.stage, judgement=_judgement(one.judge, facts)) for one in CHAIN)


def _judgement(judge: Judge, facts: DoctorFacts) -> Judgement:
    try:
        return judge(facts)
    except Absent as e:
        return skipped(e.missing)
    except (ArithmeticError, LookupError, TypeError, ValueError) as e:  # strange facts must not end the other checks
        return skipped(Missing(fact="series", reason="internal", code="INTERNAL", detail=repr(e)))
