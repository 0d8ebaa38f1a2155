"""Settings of the analyzer that are valid one by one, and cannot be used together or on this machine."""

from vgpuscope.config import Config
from vgpuscope.model.errors import ConfigInvalid
from vgpuscope.services.analyzer.notices.notices import check_notices
from vgpuscope.services.analyzer.opinion.opinions import check_model
from vgpuscope.services.analyzer.reclaim.kube import wanted
from vgpuscope.services.analyzer.sources.sources import check_source
from vgpuscope.sources.kube import check_kubeconfig


def check_settings(config: Config) -> None:
    """ConfigInvalid for settings that cannot be used."""
    check_source(config)
    check_model(config)
    check_notices(config)
    found = config.analyzer
    if wanted(config):
        check_kubeconfig(found.kubeconfig)
    if found.protect_reads and not (found.api_token or found.proxy_user_header or found.web_config_file):
        raise ConfigInvalid(
            "analyzer.protect_reads: is true, but no credentials are configured",
            hint="Set VGPUSCOPE_API_TOKEN, analyzer.web_config_file, or analyzer.proxy_user_header behind an "
            "authenticating proxy.",
        )
    if found.api_token_namespaces and not found.protect_reads:
        raise ConfigInvalid(
            "analyzer.api_token_namespaces: has no effect, because callers without the token see all namespaces",
            hint="Set analyzer.protect_reads to true.",
        )
