#!/usr/bin/env bash
# Makes what the workspace needs, once; again changes nothing that is there.
# Needs gcloud, logged in as somebody who may do this.
# shellcheck disable=SC2016  # the backticks are those of SQL
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

PROJECT=acme-data
REGION=europe-west1
export CLOUDSDK_CORE_PROJECT=$PROJECT CLOUDSDK_CORE_DISABLE_PROMPTS=1

say() { printf '== %s\n' "$*" >&2; }
is_there() { "$@" >/dev/null 2>&1; }

say "APIs"
gcloud services enable artifactregistry.googleapis.com bigquery.googleapis.com cloudscheduler.googleapis.com iam.googleapis.com run.googleapis.com secretmanager.googleapis.com sqladmin.googleapis.com

say "Repository of images"
is_there gcloud artifacts repositories describe flights --location "$REGION" ||
  gcloud artifacts repositories create flights --location "$REGION" --repository-format docker

is_there gcloud iam service-accounts describe flights-pipeline@acme-data.iam.gserviceaccount.com ||
  gcloud iam service-accounts create flights-pipeline --display-name 'flights: pipeline' \
    --description 'runs jobs: reads and writes the warehouse, keeps history in Postgres'

is_there gcloud iam service-accounts describe flights-webserver@acme-data.iam.gserviceaccount.com ||
  gcloud iam service-accounts create flights-webserver --display-name 'flights: webserver' \
    --description 'shows the history in Postgres, and migrates its tables'

is_there gcloud iam service-accounts describe flights-connections@acme-data.iam.gserviceaccount.com ||
  gcloud iam service-accounts create flights-connections --display-name 'flights: connections' \
    --description 'keeps the credentials of connections'

is_there gcloud iam service-accounts describe flights-scheduler@acme-data.iam.gserviceaccount.com ||
  gcloud iam service-accounts create flights-scheduler --display-name 'flights: scheduler' \
    --description 'starts the jobs of schedules'

is_there gcloud secrets describe flights-postgres-password ||
  gcloud secrets create flights-postgres-password --replication-policy automatic

is_there gcloud secrets describe aircraft-registry-client-id ||
  gcloud secrets create aircraft-registry-client-id --replication-policy automatic

is_there gcloud secrets describe aircraft-registry-client-secret ||
  gcloud secrets create aircraft-registry-client-secret --replication-policy automatic

is_there gcloud secrets describe flights-credential-keys ||
  gcloud secrets create flights-credential-keys --replication-policy automatic

is_there gcloud secrets describe google-oauth-client-id ||
  gcloud secrets create google-oauth-client-id --replication-policy automatic

is_there gcloud secrets describe google-oauth-client-secret ||
  gcloud secrets create google-oauth-client-secret --replication-policy automatic

is_there gcloud secrets describe hubspot-oauth-client-id ||
  gcloud secrets create hubspot-oauth-client-id --replication-policy automatic

is_there gcloud secrets describe hubspot-oauth-client-secret ||
  gcloud secrets create hubspot-oauth-client-secret --replication-policy automatic

say "Postgres: an instance takes some minutes"
is_there gcloud sql instances describe flights-dagster ||
  gcloud sql instances create flights-dagster --region "$REGION" --database-version POSTGRES_17 \
    --edition enterprise --tier db-g1-small --storage-auto-increase --backup --deletion-protection
is_there gcloud sql databases describe dagster --instance flights-dagster ||
  gcloud sql databases create dagster --instance flights-dagster
# The password is made here, and goes from one standard input to the next: no argument holds it.
if ! is_there gcloud secrets versions describe latest --secret flights-postgres-password; then
  password=$(openssl rand -hex 24)
  method=POST address=https://sqladmin.googleapis.com/v1/projects/$PROJECT/instances/flights-dagster/users
  if [ -n "$(gcloud sql users list --instance flights-dagster --filter name=dagster --format 'value(name)')" ]; then
    method=PUT address="$address?name=dagster"
  fi
  printf '{"name": "dagster", "password": "%s"}' "$password" |
    curl --silent --show-error --fail --output /dev/null --request "$method" --data @- \
      --header 'Content-Type: application/json' \
      --header @<(printf 'Authorization: Bearer %s\n' "$(gcloud auth print-access-token)") "$address"
  printf %s "$password" | gcloud secrets versions add flights-postgres-password --data-file -
  unset password
fi

say "Datasets"
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'CREATE SCHEMA IF NOT EXISTS `acme-data.bronze` OPTIONS (location = "EU")'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'CREATE SCHEMA IF NOT EXISTS `acme-data.gold` OPTIONS (location = "EU")'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'CREATE SCHEMA IF NOT EXISTS `acme-data.raw` OPTIONS (location = "EU")'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'CREATE SCHEMA IF NOT EXISTS `acme-data.silver` OPTIONS (location = "EU")'

say "Roles of the connections service"
if is_there gcloud iam roles describe segmentstreamCredentials --project "$PROJECT"; then
  gcloud iam roles update segmentstreamCredentials --project "$PROJECT" --title 'Keep credentials in secrets' --permissions secretmanager.secrets.delete,secretmanager.secrets.get,secretmanager.secrets.update,secretmanager.versions.access,secretmanager.versions.add,secretmanager.versions.destroy,secretmanager.versions.get,secretmanager.versions.list
else
  gcloud iam roles create segmentstreamCredentials --project "$PROJECT" --title 'Keep credentials in secrets' --permissions secretmanager.secrets.delete,secretmanager.secrets.get,secretmanager.secrets.update,secretmanager.versions.access,secretmanager.versions.add,secretmanager.versions.destroy,secretmanager.versions.get,secretmanager.versions.list
fi

if is_there gcloud iam roles describe segmentstreamCredentialNames --project "$PROJECT"; then
  gcloud iam roles update segmentstreamCredentialNames --project "$PROJECT" --title 'Make and list secrets' --permissions secretmanager.secrets.create,secretmanager.secrets.list
else
  gcloud iam roles create segmentstreamCredentialNames --project "$PROJECT" --title 'Make and list secrets' --permissions secretmanager.secrets.create,secretmanager.secrets.list
fi

gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com --role roles/cloudsql.client --condition None --format none
gcloud secrets add-iam-policy-binding flights-postgres-password --member serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com --role roles/bigquery.jobUser --condition None --format none
gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com --role roles/bigquery.readSessionUser --condition None --format none
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'GRANT `roles/bigquery.dataEditor` ON SCHEMA `acme-data.bronze` TO "serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com"'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'GRANT `roles/bigquery.dataEditor` ON SCHEMA `acme-data.gold` TO "serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com"'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'GRANT `roles/bigquery.dataViewer` ON SCHEMA `acme-data.raw` TO "serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com"'
bq --quiet --project_id "$PROJECT" --location EU query --use_legacy_sql=false 'GRANT `roles/bigquery.dataEditor` ON SCHEMA `acme-data.silver` TO "serviceAccount:flights-pipeline@acme-data.iam.gserviceaccount.com"'
gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-webserver@acme-data.iam.gserviceaccount.com --role roles/cloudsql.client --condition None --format none
gcloud secrets add-iam-policy-binding flights-postgres-password --member serviceAccount:flights-webserver@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding flights-credential-keys --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding aircraft-registry-client-id --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding aircraft-registry-client-secret --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding google-oauth-client-id --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding google-oauth-client-secret --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding hubspot-oauth-client-id --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud secrets add-iam-policy-binding hubspot-oauth-client-secret --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role roles/secretmanager.secretAccessor --condition None --format none
gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role projects/acme-data/roles/segmentstreamCredentials --condition 'expression=resource.name.startsWith("projects/123456789012/secrets/flightsS"),title=flights' --format none
gcloud projects add-iam-policy-binding "$PROJECT" --member serviceAccount:flights-connections@acme-data.iam.gserviceaccount.com --role projects/acme-data/roles/segmentstreamCredentialNames --condition None --format none

for secret in aircraft-registry-client-id aircraft-registry-client-secret flights-credential-keys google-oauth-client-id google-oauth-client-secret hubspot-oauth-client-id hubspot-oauth-client-secret; do
  is_there gcloud secrets versions describe latest --secret "$secret" ||
    say "The secret $secret is empty. Give it what it holds: gcloud secrets versions add $secret --data-file -"
done
