"""The scripts that need an account: `setup.sh` once, `deploy.sh` for each release.

Both can be run again: what is there is left, or brought to what the kit says. No secret is ever an
argument of a command. Imports `_manifest`, the access and the scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from segmentstream._cloud_run import access, names
from segmentstream._cloud_run.access import Grant
from segmentstream._cloud_run.documents import DATABASE, USER
from segmentstream._cloud_run.scheduling import SCOPE, Entry, description, entries, run_uri
from segmentstream._cloud_run.settings import DeploymentSettings
from segmentstream._manifest import Manifest

_SERVICES = ("artifactregistry", "bigquery", "cloudscheduler", "iam", "run", "secretmanager")
_SQL_SERVICE = "sqladmin"


def setup(manifest: Manifest, settings: DeploymentSettings) -> str:
    """Writes what is done once: services, accounts, secrets, Postgres, datasets and rights."""
    parts = [
        _head(
            settings, "Makes what the workspace needs, once; again changes nothing that is there."
        ),
        _apis(settings),
        _repository(settings),
        *(_account(settings, role, told) for role, told in access.accounts(settings).items()),
        *(_secret(name) for name in (names.password_secret(settings), *access.secrets(settings))),
        _postgres(settings),
        _datasets(manifest, settings),
        *(_custom_roles() if settings.connections else ()),
        *(
            _grant(settings, grant)
            for grant in access.grants(manifest, settings)
            if grant.kind in {"project", "secret", "dataset"}
        ),
        _empty_secrets(settings),
    ]
    return "\n".join(filter(None, parts))


def deploy(manifest: Manifest, settings: DeploymentSettings) -> str:
    """Writes what is done for each release: tables first, then what reads and writes them."""
    webserver = names.resource(settings, "webserver")
    parts = [
        _head(settings, "Brings the images that the YAML files name to Cloud Run."),
        _needed_secrets(settings),
        'say "Tables of Dagster"',
        _replace("jobs", "migrate.yaml"),
        f'gcloud run jobs execute {names.resource(settings, "migrate")} --region "$REGION" --wait',
        "",
    ]
    if settings.connections:
        parts += ['say "Connections service"', _replace("services", "connections.yaml"), ""]
    parts += ['say "Jobs and web server"', _replace("jobs", "pipeline.yaml")]
    parts += [
        _replace("jobs", f"schedules/{names.schedule_job(settings, schedule)}.yaml")
        for schedule in manifest.schedules
    ]
    parts += [_replace("services", "webserver.yaml"), ""]
    if settings.is_behind_iap:
        parts += [_iap(webserver), ""]
    parts += ['say "Who may start and call what"']
    parts += [
        _grant(settings, grant)
        for grant in access.grants(manifest, settings)
        if grant.kind in {"job", "service"}
    ]
    parts += ["", _SCHEDULER]
    parts += [
        _scheduled(settings, entry)
        for schedule in manifest.schedules
        for entry in entries(settings, schedule)
    ]
    return "\n".join(parts) + "\n"


def scheduler_flags(settings: DeploymentSettings, entry: Entry) -> list[str]:
    """Gives what an entry is for `gcloud scheduler jobs create http`."""
    return [
        f"--schedule={entry.cron}",
        f"--time-zone={entry.schedule.timezone}",
        f"--description={description(entry.schedule)}",
        f"--uri={run_uri(settings, entry.schedule)}",
        "--http-method=post",
        f"--oauth-service-account-email={names.email(settings, 'scheduler')}",
        f"--oauth-token-scope={SCOPE}",
        "--attempt-deadline=180s",
        "--max-retry-attempts=3",
        "--min-backoff=30s",
        "--max-backoff=300s",
    ]


def _head(settings: DeploymentSettings, says: str) -> str:
    return f"""\
#!/usr/bin/env bash
# {says}
# Needs gcloud, logged in as somebody who may do this.
# shellcheck disable=SC2016  # the backticks are those of SQL
set -euo pipefail
cd "$(dirname "${{BASH_SOURCE[0]}}")"

PROJECT={settings.project}
REGION={settings.region}
export CLOUDSDK_CORE_PROJECT=$PROJECT CLOUDSDK_CORE_DISABLE_PROMPTS=1

say() {{ printf '== %s\\n' "$*" >&2; }}
is_there() {{ "$@" >/dev/null 2>&1; }}
"""


def _apis(settings: DeploymentSettings) -> str:
    wanted = [*_SERVICES, _SQL_SERVICE, *(["iap"] if settings.is_behind_iap else [])]
    listed = " ".join(f"{name}.googleapis.com" for name in sorted(wanted))
    return f'say "APIs"\ngcloud services enable {listed}\n'


def _repository(settings: DeploymentSettings) -> str:
    repository = settings.repository
    if repository is None:
        return ""
    return f"""\
say "Repository of images"
is_there gcloud artifacts repositories describe {repository} --location "$REGION" ||
  gcloud artifacts repositories create {repository} --location "$REGION" --repository-format docker
"""


def _account(settings: DeploymentSettings, role: str, told: str) -> str:
    name, email = names.resource(settings, role), names.email(settings, role)
    return f"""\
is_there gcloud iam service-accounts describe {email} ||
  gcloud iam service-accounts create {name} --display-name {quote(f"{settings.name}: {role}")} \\
    --description {quote(told)}
"""


def _secret(name: str) -> str:
    return f"""\
is_there gcloud secrets describe {name} ||
  gcloud secrets create {name} --replication-policy automatic
"""


def _postgres(settings: DeploymentSettings) -> str:
    secret = names.password_secret(settings)
    instance = settings.sql_instance
    users = f"https://sqladmin.googleapis.com/v1/projects/$PROJECT/instances/{instance}/users"
    return f"""\
say "Postgres: an instance takes some minutes"
is_there gcloud sql instances describe {instance} ||
  gcloud sql instances create {instance} --region "$REGION" --database-version POSTGRES_17 \\
    --edition enterprise --tier db-g1-small --storage-auto-increase --backup --deletion-protection
is_there gcloud sql databases describe {DATABASE} --instance {instance} ||
  gcloud sql databases create {DATABASE} --instance {instance}
# The password is made here, and goes from one standard input to the next: no argument holds it.
if ! is_there gcloud secrets versions describe latest --secret {secret}; then
  password=$(openssl rand -hex 24)
  method=POST address={users}
  if [ -n "$(gcloud sql users list --instance {instance} --filter name={USER} --format 'value(name)')" ]; then
    method=PUT address="$address?name={USER}"
  fi
  printf '{{"name": "{USER}", "password": "%s"}}' "$password" |
    curl --silent --show-error --fail --output /dev/null --request "$method" --data @- \\
      --header 'Content-Type: application/json' \\
      --header @<(printf 'Authorization: Bearer %s\\n' "$(gcloud auth print-access-token)") "$address"
  printf %s "$password" | gcloud secrets versions add {secret} --data-file -
  unset password
fi
"""


def _datasets(manifest: Manifest, settings: DeploymentSettings) -> str:
    found = access.datasets(manifest, settings)
    if not found:
        return ""
    made = "\n".join(
        _sql(
            f"CREATE SCHEMA IF NOT EXISTS `{settings.project}.{name}` "
            f'OPTIONS (location = "{settings.location}")',
            settings,
        )
        for name in found
    )
    return f'say "Datasets"\n{made}\n'


def _sql(statement: str, settings: DeploymentSettings) -> str:
    flags = f'--quiet --project_id "$PROJECT" --location {settings.location}'
    return f"bq {flags} query --use_legacy_sql=false {quote(statement)}"


def _custom_roles() -> Iterable[str]:
    yield 'say "Roles of the connections service"'
    for role in access.CREDENTIAL_ROLES:
        flags = f"--title {quote(role.title)} --permissions {','.join(role.permissions)}"
        yield f"""\
if is_there gcloud iam roles describe {role.name} --project "$PROJECT"; then
  gcloud iam roles update {role.name} --project "$PROJECT" {flags}
else
  gcloud iam roles create {role.name} --project "$PROJECT" {flags}
fi
"""


def _grant(settings: DeploymentSettings, grant: Grant) -> str:
    member = f"serviceAccount:{names.email(settings, grant.account)}"
    if grant.kind == "dataset":
        # Rights on a dataset are given in SQL; giving one twice is one.
        return _sql(
            f'GRANT `{grant.role}` ON SCHEMA `{settings.project}.{grant.name}` TO "{member}"',
            settings,
        )
    on = {
        "project": 'projects add-iam-policy-binding "$PROJECT"',
        "secret": f"secrets add-iam-policy-binding {grant.name}",
        "job": f'run jobs add-iam-policy-binding {grant.name} --region "$REGION"',
        "service": f'run services add-iam-policy-binding {grant.name} --region "$REGION"',
    }[grant.kind]
    told = f"expression={grant.condition},title={settings.name}" if grant.condition else "None"
    condition = f" --condition {quote(told)}" if grant.kind in {"project", "secret"} else ""
    return f"gcloud {on} --member {member} --role {grant.role}{condition} --format none"


def _empty_secrets(settings: DeploymentSettings) -> str:
    found = access.secrets(settings)
    if not found:
        return ""
    return f"""\

for secret in {" ".join(found)}; do
  is_there gcloud secrets versions describe latest --secret "$secret" ||
    say "The secret $secret is empty. Give it what it holds: gcloud secrets versions add $secret --data-file -"
done
"""


def _needed_secrets(settings: DeploymentSettings) -> str:
    names_of_all = " ".join((names.password_secret(settings), *access.secrets(settings)))
    return f"""\
# Cloud Run takes no job or service whose secrets hold nothing.
for secret in {names_of_all}; do
  if ! is_there gcloud secrets versions describe latest --secret "$secret"; then
    say "The secret $secret holds nothing: gcloud secrets versions add $secret --data-file -"
    exit 1
  fi
done
"""


def _replace(kind: str, file: str) -> str:
    return f'gcloud run {kind} replace {file} --region "$REGION"'


def _iap(webserver: str) -> str:
    return f"""\
# IAP asks who somebody is, and calls the service with an account of its own.
gcloud run services update {webserver} --region "$REGION" --iap
number=$(gcloud projects describe "$PROJECT" --format 'value(projectNumber)')
gcloud run services add-iam-policy-binding {webserver} --region "$REGION" --role roles/run.invoker \\
  --member "serviceAccount:service-$number@gcp-sa-iap.iam.gserviceaccount.com" --format none"""


_SCHEDULER = """\
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
}"""


def _scheduled(settings: DeploymentSettings, entry: Entry) -> str:
    flags = " \\\n  ".join(quote(flag) for flag in scheduler_flags(settings, entry))
    return f"schedule {entry.name} {'on' if entry.schedule.is_on else 'off'} \\\n  {flags}"
