"""``pai list-storages``, ``select-storage``, ``add-storage-cluster``: the storages of clusters."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.output import print_notice, show, table
from paiprotocol.errors import UsageError

KINDS = ("hdfs", "nfs", "mount", "s3", "azureblob")
PREFIXES = ("configs", "servers_data", "servers_ext")


def list_storages(argv: list[str]) -> int:
    """``pai list-storages [alias]``"""
    parser = command_parser(
        "list-storages", "pai list-storages team", "A star marks the selected storage (0)."
    )
    parser.add_argument("alias", nargs="?", default="", help="the cluster's alias")
    args = parser.parse(argv)
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.catalog import select_storage as choose_storage

    opener = StorageOpener(print_notice)
    alias = opener.registry.resolve(args.alias or args.cluster_alias).alias
    entries = opener.entries(alias)
    selected = choose_storage(entries, "0", opener.selected(alias), alias).name if entries else ""
    storages = [{**entry.as_mapping(), "selected": entry.name == selected} for entry in entries]

    def render() -> str:
        rows = [
            [
                "*" if entry.name == selected else "",
                entry.name,
                entry.mount_point or "-",
                entry.kind,
                entry.webhdfs or entry.address or "-",
                entry.path or "/",
                entry.permission,
            ]
            for entry in entries
        ]
        return table(["", "NAME", "MOUNT POINT", "TYPE", "SERVER", "PATH", "PERMISSION"], rows)

    show(storages, args.output, render)
    return 0


def select_storage(argv: list[str]) -> int:
    """``pai select-storage -a ALIAS --storage-name NAME [-w WORKSPACE]``"""
    parser = command_parser(
        "select-storage",
        "pai select-storage -a team --storage-name hdfs --workspace vision",
        "In pai:// URLs, 0 then means this storage. Jobs store their files in the workspace, unless -w of\n"
        "pai sub or pai set workspace=PATH names another one; pai://<cluster>/jobs/<job>/ has them anyway.",
        output=False,
    )
    parser.add_argument(
        "--storage-name",
        "-s",
        default="",
        metavar="NAME",
        help="the storage's name, as listed by pai list-storages",
    )
    parser.add_argument(
        "--workspace",
        "-w",
        default="",
        metavar="PATH",
        help="a folder, relative to /<user>; created if missing (default: /<user> itself)",
    )
    parser.add_argument("--clear", action="store_true", help="undo the selection of storage and workspace")
    args = parser.parse(argv)
    registry = ClusterRegistry.load()
    entry = registry.resolve(args.cluster_alias)
    if not entry.is_embedded and registry.find(entry.alias) is None:
        raise UsageError(
            "A task cannot select a storage of its own cluster.",
            hint=f"Name the storage in the address: pai://{entry.alias}/<storage>/<path>",
        )
    if args.clear:
        if args.storage_name or args.workspace:
            raise UsageError("--clear selects nothing: leave out --storage-name and --workspace.")
        return _clear_selection(entry.alias)
    if not args.storage_name:
        raise UsageError(
            "--storage-name is missing.", hint="pai list-storages lists the storages; --clear selects none."
        )
    from openpaisdk.jobs.command_job import absolute_workspace
    from openpaisdk.storage.catalog import StorageOpener
    from openpaisdk.storage.catalog import select_storage as choose_storage

    opener = StorageOpener(print_notice)
    alias = entry.alias
    storage = choose_storage(opener.entries(alias), args.storage_name, "", alias)
    user = opener.user_of(alias)
    workspace = absolute_workspace(args.workspace, user)
    from openpaisdk.storage.location import parse_location

    backend, path = opener.open(parse_location(f"pai://{alias}/{storage.name}{workspace}"))
    if storage.permission != "ro":
        backend.make_folder(path)
    entry = registry.find(alias) or entry
    registry.put(ClusterEntry({**entry.raw, "storage_name": storage.name, "workspace": workspace}))
    print_notice(f"Selected the storage {storage.name} on {alias}; jobs store their files in {workspace}.")
    if preferred := registry.defaults.text("workspace"):
        print_notice(f"pai set workspace={preferred} takes precedence; pai unset workspace removes it.")
    return 0


def _clear_selection(alias: str) -> int:
    registry = ClusterRegistry.load()
    entry = registry.find(alias)
    kept = {k: v for k, v in entry.raw.items() if k not in ("storage_name", "workspace")} if entry else {}
    if entry is None or kept == entry.raw:
        print_notice(f"No storage is selected on {alias}.")
        return 0
    registry.put(ClusterEntry(kept))
    print_notice(f"No storage is selected on {alias} any more: 0 means its default storage.")
    return 0


def add_storage_cluster(argv: list[str]) -> int:
    """``pai add-storage-cluster -a ALIAS --type TYPE --address ADDRESS --path PATH [contents ...]``"""
    parser = command_parser(
        "add-storage-cluster",
        "pai add-storage-cluster -a lab --type hdfs --address http://namenode:9870 --path /\n"
        "pai add-storage-cluster -a disks --type mount --path /mnt/shared\n"
        "pai add-storage-cluster -a sets --type s3 --address https://s3.example.com --path /BUCKET",
        "The storage is then available as pai://<alias>/<storage>/<path>; no connection is made yet. For\n"
        "type hdfs, the address is that of WebHDFS (or HOST, then port 50070). Another port of it\n"
        "is servers_ext:webhdfs=PORT, another address servers_ext:webhdfs=ADDRESS.\n"
        "For s3 and azureblob, the path begins with the bucket or container; the address is only needed for\n"
        "servers other than AWS's and Azure's. The credentials are those of this machine.\n"
        "Further settings are prefix:key=value, with the prefixes configs (name, mountPoint, permission,\n"
        "region, account), servers_data and servers_ext.",
        output=False,
        cluster=False,
    )
    parser.add_argument(
        "-a", "--cluster-alias", required=True, metavar="ALIAS", help="your name for the storage"
    )
    parser.add_argument("--type", required=True, choices=KINDS, help="the type of storage")
    parser.add_argument("--address", default="", help="the address of its server")
    parser.add_argument("--path", default="/", help="the folder of the storage to expose (default: /)")
    parser.add_argument(
        "--user", default="", help="your user name on the storage (default: your local user name)"
    )
    parser.add_argument("contents", nargs="*", metavar="prefix:key=value", help="further settings")
    args = parser.parse(argv)
    from openpaisdk.config.clusters import check_alias, check_storage_name
    from openpaisdk.storage.catalog import CLOUD_STORAGES, configured_storages, webhdfs_url
    from openpaisdk.storage.location import normalize_path

    alias = check_alias(args.cluster_alias)
    settings = _parse_settings(args.contents)
    registry = ClusterRegistry.load()
    known = registry.find(alias)
    if known is not None and not known.is_storage:
        raise UsageError(f"{alias} is the alias of a cluster; choose another alias for the storage.")
    if args.type not in ("mount", *CLOUD_STORAGES) and not args.address:
        raise UsageError(f"A storage of type {args.type} needs an --address.")
    if args.type in CLOUD_STORAGES and not args.path.strip("/"):
        raise UsageError(
            f"A storage of type {args.type} needs a --path that begins with the name of its bucket."
        )
    name = settings["configs"].pop("name", "") or args.type
    if known is None or name not in [storage.name for storage in configured_storages(known)]:
        check_storage_name(name)
    storage: dict[str, object] = {
        "name": name,
        "type": args.type,
        "address": args.address,
        "path": normalize_path(args.path),
    }
    if args.type == "hdfs":
        webhdfs = settings["servers_data"].get("webhdfs", "")
        address = webhdfs_url(webhdfs or args.address, dict(settings["servers_ext"]))
        from openpaisdk.client.address import parse_uri

        parse_uri(address)
        storage["webhdfs"] = address
    storage |= settings["configs"]
    stored = known.raw.get("storages") if known is not None else None
    others = [each for each in stored if isinstance(each, dict)] if isinstance(stored, list) else []
    raw: dict[str, object] = {
        "cluster_alias": alias,
        "type": f"storage-{args.type}",
        "user": args.user or (known.text("user") if known is not None else ""),
        "storages": [*(each for each in others if each.get("name") != name), storage],
    }
    registry.put(ClusterEntry(raw))
    print_notice(f"Added. Its files are at pai://{alias}/{name}/")
    return 0


def _parse_settings(items: list[str]) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    for item in items:
        prefix, colon, rest = item.partition(":")
        key, equals, value = rest.partition("=")
        if prefix not in settings or not colon or not equals or not key:
            raise UsageError(
                f"{item!r} is not prefix:key=value.", hint=f"The prefixes are {', '.join(PREFIXES)}."
            )
        settings[prefix][key] = value
    return settings
