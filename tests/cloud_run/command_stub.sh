#!/usr/bin/env bash
# Stands for gcloud, bq, curl and openssl: writes down arguments, and apart from them its input. What
# was created is there from then on; `describe` and `list` answer by that. Starts no other program.
set -u
me=${0##*/}
printf '%s\0' "$me" "$@" $'\x1e' >>"$STUB_FOLDER/calls"

there() { printf -v place '%s' "$STUB_FOLDER/there_${*//\//_}"; }
named() {  # by what stands before the verb, and the name behind it
  local verb=$1 before=
  shift
  while [ "$1" != "$verb" ]; do before+="$1 " && shift; done
  shift
  [ "$1" != http ] || shift
  there "$before${1%%@*}"  # an account is made by name and asked for by address
}
keep() { printf %s "$1" >>"$STUB_FOLDER/input"; }

case "$me $*" in
  openssl*) echo the-password ;;
  curl*)
    for argument; do
      case $argument in @-) ;; @*) keep "$(<"${argument#@}")" ;; esac
    done
    keep "$(</dev/stdin)"
    there user && : >"$place"
    ;;
  "gcloud auth print-access-token") echo the-token ;;
  "gcloud secrets versions add "*) keep "$(</dev/stdin)" && there "version $4" && : >"$place" ;;
  "gcloud secrets versions describe "*) there "version $6" && [ -e "$place" ] ;;
  "gcloud sql users list "*) there user && if [ -e "$place" ]; then echo dagster; fi ;;
  *" describe "*) named describe "$@" && [ -e "$place" ] ;;
  *" create "*) named create "$@" && : >"$place" ;;
esac
