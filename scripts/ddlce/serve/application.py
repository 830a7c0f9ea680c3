"""The WSGI application: four kinds of address, read-only."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from werkzeug.exceptions import HTTPException, InternalServerError, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request, Response

from ddlce.engine.describe import CHANNELDATA
from ddlce.errors import SourceError
from ddlce.model.channel import SBOMS, Channel
from ddlce.serve.catalogue import read_catalogue
from ddlce.serve.files import find_file, send_file
from ddlce.serve.pages import Pages
from ddlce.trust.names import DRAFT, METADATA

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

URLS = Map(
    [
        Rule("/", endpoint="index", methods=["GET"]),
        Rule(f"/{CHANNELDATA}", endpoint="channeldata", methods=["GET"]),
        Rule("/packages/<name>", endpoint="package", methods=["GET"]),
        Rule(f"/{SBOMS}/<name>", endpoint="sbom", methods=["GET"]),
        Rule(f"/{METADATA}/<name>", endpoint="metadata", methods=["GET"]),
        Rule("/<subdir>/<path:path>", endpoint="file", methods=["GET"]),
    ],
    # A redirect for `//` would show clients a different address than they asked for.
    merge_slashes=False,
)

#: The pages are one file each and run nothing.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'",
    "Cache-Control": "no-cache",
}


class ChannelApp:
    """Serves the files of `folder` to clients, and pages about them to people.

    Args:
        folder: the channel: one folder per subdir.
        channel: its description; only its subdirs are served.
    """

    def __init__(self, folder: Path, channel: Channel, pages: Pages) -> None:
        self.folder = folder
        self.channel = channel
        self.pages = pages

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        try:
            endpoint, values = URLS.bind_to_environ(environ).match()
            response = getattr(self, endpoint)(Request(environ), **values)
        except HTTPException as error:
            response = error.get_response(environ)
        except SourceError as error:  # a damaged index: the packages can still be fetched
            response = InternalServerError(error.message).get_response(environ)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response(environ, start_response)  # type: ignore[no-any-return]

    def index(self, request: Request) -> Response:
        """The channel's page."""
        packages = read_catalogue(self.folder, self.channel.subdirs)
        indexed = [s for s in self.channel.subdirs if (self.folder / s / "repodata.json").exists()]
        sboms = sorted(path.name for path in (self.folder / SBOMS).glob("[!.]*.json"))
        return self._page(self.pages.index(packages, request.host_url.rstrip("/"), indexed, sboms))

    def package(self, request: Request, name: str) -> Response:
        """One package's page."""
        packages = read_catalogue(self.folder, self.channel.subdirs)
        if name not in packages:
            raise NotFound(f"There is no package {name!r} in this channel.")
        url = request.host_url.rstrip("/")
        return self._page(self.pages.package(packages[name], packages, url))

    def channeldata(self, request: Request) -> Response:
        """What all packages say of themselves."""
        return send_file(find_file(self.folder, ".", CHANNELDATA), request.environ)

    def sbom(self, request: Request, name: str) -> Response:
        """A release's bill of materials."""
        return send_file(find_file(self.folder, SBOMS, name), request.environ)

    def metadata(self, request: Request, name: str) -> Response:
        """What clients check signatures by; not a root that keys must still sign."""
        if name == DRAFT:
            raise NotFound
        return send_file(find_file(self.folder, METADATA, name), request.environ)

    def file(self, request: Request, subdir: str, path: str) -> Response:
        """A package, or a file of the index."""
        if subdir not in self.channel.subdirs:
            raise NotFound
        return send_file(find_file(self.folder, subdir, path), request.environ)

    @staticmethod
    def _page(html: str) -> Response:
        return Response(html, mimetype="text/html", headers=PAGE_HEADERS)
