"""How the owner of a pod is made to give up its GPUs: the fields that do it, by group and kind.

A field is named by its path, joined with spaces; no key of the API contains one.
"""

from collections.abc import Mapping
from typing import Final

REPLICAS = "spec replicas"
SUSPEND = "spec suspend"
MIN_REPLICAS = "spec predictor minReplicas"
KSERVE_STOP = "metadata annotations serving.kserve.io/stop"
NOTEBOOK_STOP = "metadata annotations kubeflow-resource-stopped"
STOPS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("apps", "Deployment"): (REPLICAS,),
    ("apps", "StatefulSet"): (REPLICAS,),
    ("apps", "ReplicaSet"): (REPLICAS,),
    ("batch", "Job"): (SUSPEND,),
    # In serverless mode no minimum means none without requests. Newer releases obey the annotation, in every mode.
    ("serving.kserve.io", "InferenceService"): (MIN_REPLICAS, KSERVE_STOP),
    ("kubeflow.org", "Notebook"): (NOTEBOOK_STOP,),
}
POD: Final = "Pod"  # one without an owner is evicted
STOPPED_KINDS: Final = (*(kind for _, kind in STOPS), POD)
