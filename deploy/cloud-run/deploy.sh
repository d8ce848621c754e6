#!/usr/bin/env bash
# Brings the images that the YAML files name to Cloud Run.
# Needs gcloud, logged in as somebody who may do this.
# shellcheck disable=SC2016  # the backticks are those of SQL
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

PROJECT=acme-data
REGION=europe-west1
export CLOUDSDK_CORE_PROJECT=$PROJECT CLOUDSDK_CORE_DISABLE_PROMPTS=1

say() { printf '== %s\n' "$*" >&2; }
is_there() { "$@" >/dev/null 2>&1; }

# Cloud Run takes no job or service whose secrets hold nothing.
for secret in flights-postgres-password aircraft-registry-client-id aircraft-registry-client-secret flights-credential-keys google-oauth-client-id google-oauth-client-secret hubspot-oauth-client-id hubspot-oauth-client-secret; do
  if ! is_there gcloud secrets versions describe latest --secret "$secret"; then
    say "The secret $secret holds nothing: gcloud secrets versions add $secret --data-file -"
    exit 1
  fi
done

say "Tables of Dagster"
gcloud run jobs replace migrate.yaml --region "$REGION"
gcloud run jobs execute flights-migrate --region "$REGION" --wait

say "Connections service"
gcloud run services replace connections.yaml --region "$REGION"

say "Jobs and web server"
gcloud run jobs replace pipeline.yaml --region "$REGION"
gcloud run jobs replace schedules/flights-cron-load-flights-schedule.yaml --region "$REGION"
gcloud run jobs replace schedules/flights-cron-update-reports-schedule.yaml --region "$REGION"
gcloud run services replace webserver.yaml --region "$REGION"

say "Who may start and call what"
gcloud run services add-iam-policy-binding flights-connections --region "$REGION" --member serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com --role roles/run.invoker --format none
gcloud run jobs add-iam-policy-binding flights-cron-load-flights-schedule --region "$REGION" --member serviceAccount:flights-scheduler@acme-data.iam.gserviceaccount.com --role roles/run.invoker --format none
gcloud run jobs add-iam-policy-binding flights-cron-update-reports-schedule --region "$REGION" --member serviceAccount:flights-scheduler@acme-data.iam.gserviceaccount.com --role roles/run.invoker --format none

say "Schedules"
# An entry that is there keeps its state: who has paused or resumed it is left alone.
schedule() {  # its name, whether it is on, what it is
  local name=$1 is_on=$2
  shift 2
  if is_there gcloud scheduler jobs describe "$name" --location "$REGION"; then
    gcloud scheduler jobs update http "$name" --location "$REGION" "$@" --format none
  else
    gcloud scheduler jobs create http "$name" --location "$REGION" "$@" --format none
    [ "$is_on" = on ] || gcloud scheduler jobs pause "$name" --location "$REGION"
  fi
}
schedule flights-cron-load-flights-schedule off \
  '--schedule=0 6 * * *' \
  --time-zone=America/New_York \
  '--description=Schedule load_flights_schedule of the job load_flights' \
  --uri=https://run.googleapis.com/v2/projects/acme-data/locations/europe-west1/jobs/flights-cron-load-flights-schedule:run \
  --http-method=post \
  --oauth-service-account-email=flights-scheduler@acme-data.iam.gserviceaccount.com \
  --oauth-token-scope=https://www.googleapis.com/auth/cloud-platform \
  --attempt-deadline=180s \
  --max-retry-attempts=3 \
  --min-backoff=30s \
  --max-backoff=300s
schedule flights-cron-update-reports-schedule off \
  '--schedule=0 7 * * *' \
  --time-zone=America/New_York \
  '--description=Schedule update_reports_schedule of the job update_reports' \
  --uri=https://run.googleapis.com/v2/projects/acme-data/locations/europe-west1/jobs/flights-cron-update-reports-schedule:run \
  --http-method=post \
  --oauth-service-account-email=flights-scheduler@acme-data.iam.gserviceaccount.com \
  --oauth-token-scope=https://www.googleapis.com/auth/cloud-platform \
  --attempt-deadline=180s \
  --max-retry-attempts=3 \
  --min-backoff=30s \
  --max-backoff=300s
