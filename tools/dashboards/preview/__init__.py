"""Pictures of the dashboards without a Grafana: what the files say, with the data of a Prometheus."""
