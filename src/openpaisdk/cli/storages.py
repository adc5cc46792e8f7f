"""``pai list-storages``, ``select-storage``, ``add-storage-cluster``: which storages there are."""

from __future__ import annotations

from openpaisdk.cli.parser import command_parser
from openpaisdk.config.clusters import ClusterEntry, ClusterRegistry
from openpaisdk.errors import UsageError
from openpaisdk.output import print_notice, show, table

KINDS = ("hdfs", "nfs", "mount")
PREFIXES = ("configs", "servers_data", "servers_ext")


def list_storages(argv: list[str]) -> int:
    """``pai list-storages [alias]``"""
    parser = command_parser("list-storages", "pai list-storages team", "The one that 0 means has a star.")
    parser.add_argument("alias", nargs="?", default="", help="the cluster's alias")
    args = parser.parse(argv)
    from openpaisdk.storage.catalog import StorageOpener, select_storage

    opener = StorageOpener(print_notice)
    alias = opener.registry.resolve(args.alias or args.cluster_alias).alias
    entries = opener.entries(alias)
    meant = select_storage(entries, "0", opener.selected(alias), alias).name if entries else ""
    shown = [{**entry.as_mapping(), "selected": entry.name == meant} for entry in entries]

    def people() -> str:
        rows = [
            [
                "*" if entry.name == meant else "",
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

    show(shown, args.output, people)
    return 0


def select_storage(argv: list[str]) -> int:
    """``pai select-storage -a ALIAS --storage-name NAME [-w WORKSPACE]``"""
    parser = command_parser(
        "select-storage",
        "pai select-storage -a team --storage-name hdfs --workspace vision",
        "The storage is then called 0 in addresses, and jobs keep their files in /<user>/<workspace> on it.",
        output=False,
    )
    parser.add_argument(
        "--storage-name", "-s", required=True, metavar="NAME", help="as pai list-storages shows"
    )
    parser.add_argument("--workspace", "-w", default="", help="a folder in yours; it is made")
    args = parser.parse(argv)
    from openpaisdk.storage.catalog import StorageOpener, select_storage
    from openpaisdk.storage.location import normalize_path

    opener = StorageOpener(print_notice)
    alias = opener.registry.resolve(args.cluster_alias).alias
    chosen = select_storage(opener.entries(alias), args.storage_name, "", alias)
    user = opener.user_of(alias)
    workspace = normalize_path(f"/{user}/{args.workspace}")
    from openpaisdk.storage.location import parse_location

    backend, path = opener.open(parse_location(f"pai://{alias}/{chosen.name}{workspace}"))
    if chosen.permission != "ro":
        backend.make_folder(path)
    book = ClusterRegistry.load()
    entry = book.find(alias) or ClusterEntry.embedded()
    book.put(ClusterEntry({**entry.raw, "storage_name": chosen.name, "workspace": workspace}))
    print_notice(f"On {alias} the storage {chosen.name} is selected; jobs keep their files in {workspace}.")
    return 0


def add_storage_cluster(argv: list[str]) -> int:
    """``pai add-storage-cluster -a ALIAS --type TYPE --address ADDRESS --path PATH [contents ...]``"""
    parser = command_parser(
        "add-storage-cluster",
        "pai add-storage-cluster -a lab --type hdfs --address http://namenode:9870 --path /\n"
        "pai add-storage-cluster -a disks --type mount --path /mnt/shared",
        "Reached afterwards as pai://<alias>/<storage>/<path>; nothing is asked yet. Of an hdfs, the\n"
        "address is that of its WebHDFS (or HOST, then port 50070, or servers_ext:webhdfs=PORT).\n"
        "contents are prefix:key=value, with the prefixes configs (name, mountPoint, permission),\n"
        "servers_data and servers_ext.",
        output=False,
        cluster=False,
    )
    parser.add_argument("-a", "--cluster-alias", required=True, metavar="ALIAS", help="what you will call it")
    parser.add_argument("--type", required=True, choices=KINDS, help="what it is")
    parser.add_argument("--address", default="", help="its server")
    parser.add_argument("--path", default="/", help="the folder of it that you want to see")
    parser.add_argument("--user", default="", help="who you are there, if not who you are here")
    parser.add_argument("contents", nargs="*", metavar="prefix:key=value", help="more about it")
    args = parser.parse(argv)
    from openpaisdk.config.clusters import check_alias
    from openpaisdk.storage.catalog import webhdfs_url
    from openpaisdk.storage.location import normalize_path

    alias = check_alias(args.cluster_alias)
    said = _contents(args.contents)
    book = ClusterRegistry.load()
    known = book.find(alias)
    if known is not None and not known.is_storage:
        raise UsageError(f"{alias} is a cluster you have; choose another alias for the storage.")
    if args.type != "mount" and not args.address:
        raise UsageError(f"A storage of type {args.type} needs an --address.")
    name = said["configs"].pop("name", "") or args.type
    storage: dict[str, object] = {
        "name": name,
        "type": args.type,
        "address": args.address,
        "path": normalize_path(args.path),
    }
    if args.type == "hdfs":
        given = said["servers_data"].get("webhdfs", "")
        address = webhdfs_url(given or args.address, dict(said["servers_ext"]))
        from openpaisdk.client.address import parse_uri

        parse_uri(address)
        storage["webhdfs"] = address
    storage |= said["configs"]
    kept = known.raw.get("storages") if known is not None else None
    others = [each for each in kept if isinstance(each, dict)] if isinstance(kept, list) else []
    raw: dict[str, object] = {
        "cluster_alias": alias,
        "type": f"storage-{args.type}",
        "user": args.user or (known.text("user") if known is not None else ""),
        "storages": [*(each for each in others if each.get("name") != name), storage],
    }
    book.put(ClusterEntry(raw))
    print_notice(f"Added. Its files are at pai://{alias}/{name}/")
    return 0


def _contents(words: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    for word in words:
        prefix, colon, rest = word.partition(":")
        key, equals, value = rest.partition("=")
        if prefix not in found or not colon or not equals or not key:
            raise UsageError(
                f"{word!r} is not prefix:key=value.", hint=f"The prefixes are {', '.join(PREFIXES)}."
            )
        found[prefix][key] = value
    return found
