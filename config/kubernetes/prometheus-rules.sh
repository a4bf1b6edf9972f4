#!/bin/sh
# Prints dashboards/rules as PrometheusRule resources:  config/kubernetes/prometheus-rules.sh | kubectl apply -f -
set -eu
cd "$(dirname "$0")/../../dashboards/rules"
for file in *.yml; do
  cat <<HEAD
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: forkwatch-${file%.yml}
  labels: {app.kubernetes.io/name: forkwatch}
spec:
HEAD
  sed 's/^./  &/' "$file"
done
