"""Each search engine's recipe, with the real library if it is installed: features by name, and a click on a hit."""

import json
import runpy
import sqlite3
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from foltr import FeatureSchema, Ranking, SearchRanker

RECIPES = Path(__file__).parents[3] / "examples/search_engines"
SCHEMA = FeatureSchema.read(RECIPES / "schema.json")
UNCHANGED = Ranking(exploration="none")
PAGES = [("tea", "a hot drink"), ("teapot", "a pot for hot tea"), ("coffee", "beans")]


def recipe(name):
    return SimpleNamespace(**runpy.run_path(str(RECIPES / f"{name}.py")))


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.fixture
def ranker():
    with SearchRanker(store=":memory:", schema=SCHEMA, ranking=UNCHANGED) as ranker:
        yield ranker


def assert_learned_from(ranker, serp, features):
    """The list has these features, scaled by the schema; a click on it is recorded."""
    assert (serp.features == SCHEMA.normalise(features)).all()
    ranker.record_clicks(serp.serp_id, [1])
    assert ranker.n_waiting == 1


@pytest.fixture
def server():
    """Answers each request with ``answer`` in the type that the client accepts, and keeps what it was asked."""
    asked = []

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            body, kind = json.dumps(serving.answer).encode(), self.headers.get("Accept", "")
            self.send_response(200)
            self.send_header("Content-Type", kind if "json" in kind else "application/json")
            self.send_header("X-Elastic-Product", "Elasticsearch")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    serving = SimpleNamespace(url=f"http://127.0.0.1:{listening.server_port}", asked=asked, answer=None)
    yield serving
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_fts5(ranker):
    """BM25 of each column; no hits are an empty list."""
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.execute("CREATE VIRTUAL TABLE pages USING fts5(title, body)")
    database.executemany("INSERT INTO pages VALUES (?, ?)", PAGES)
    search = recipe("with_fts5").search
    serp, hits = search(database, ranker, "hot OR tea")
    assert [hit["title"] for hit in hits] == ["tea", "teapot"]
    assert hits[1]["title_score"] == 0.0 < hits[0]["title_score"]
    assert_learned_from(ranker, serp, [[hit["title_score"], hit["body_score"]] for hit in hits])
    assert search(database, ranker, "wine")[1] == []
    database.close()


@pytest.mark.parametrize(("name", "client"), [("opensearchpy", "OpenSearch"), ("elasticsearch", "Elasticsearch")])
def test_opensearch_and_elasticsearch(ranker, server, name, client):
    """The scores of the named clauses, as both servers answer with; they are asked for them."""
    hits = [
        {"_index": "pages", "_id": "1", "_score": 2.5, "_source": {}, "matched_queries": {"title": 1.5, "body": 1.0}},
        {"_index": "pages", "_id": "2", "_score": 0.5, "_source": {}, "matched_queries": {"body": 0.5}},
    ]
    total = {"value": 2, "relation": "eq"}
    server.answer = {"took": 1, "timed_out": False, "hits": {"total": total, "max_score": 2.5, "hits": hits}}
    connection = getattr(library(name), client)(server.url)
    serp, shown = recipe("with_opensearch").search(connection, ranker, "tea")
    connection.close()
    assert [hit["_id"] for hit in shown] == ["1", "2"]
    assert_learned_from(ranker, serp, [[1.5, 1.0], [0.0, 0.5]])
    ((path, body),) = server.asked
    assert path == "/pages/_search?include_named_queries_score=true"
    assert [clause["match"].keys() for clause in body["query"]["bool"]["should"]] == [{"title"}, {"body"}]


def test_meilisearch(server):
    """The scores of the ranking rules; a rule that was not needed has none."""
    meilisearch = library("meilisearch")
    details = {"words": {"order": 0, "matchingWords": 1, "maxMatchingWords": 1, "score": 1.0}}
    details |= {"typo": {"order": 1, "typoCount": 1, "maxTypoCount": 2, "score": 0.5}}
    hits = [{"id": 1, "_rankingScoreDetails": details}, {"id": 2, "_rankingScoreDetails": {}}]
    server.answer = {"hits": hits, "query": "tea", "processingTimeMs": 1, "limit": 50, "offset": 0}
    schema = FeatureSchema.read(RECIPES / "meilisearch.json")
    with SearchRanker(store=":memory:", schema=schema, ranking=UNCHANGED) as ranker:
        serp, shown = recipe("with_meilisearch").search(meilisearch.Client(server.url), ranker, "tea")
    assert [hit["id"] for hit in shown] == [1, 2]
    assert serp.features.tolist() == [[1.0, 0.5, 0.0, 0.0, 0.0], [0.0] * 5]
    ((path, body),) = server.asked
    assert path == "/indexes/pages/search"
    assert body["showRankingScoreDetails"] is True


def test_tantivy(ranker):
    """The score of each field, of documents in an index of the library."""
    tantivy = library("tantivy")
    builder = tantivy.SchemaBuilder()
    for name in ("title", "body"):
        builder.add_text_field(name, stored=True)
    index = tantivy.Index(builder.build())
    writer = index.writer(heap_size=15_000_000, num_threads=1)
    for title, body in PAGES:
        writer.add_document(tantivy.Document(title=title, body=body))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    search = recipe("with_tantivy").search
    serp, shown = search(index, ranker, "hot tea")
    assert [document["title"] for document in shown] == [["tea"], ["teapot"]]
    # Without a boost a document's score is the sum of its fields'.
    for field, column in (("title", 0), ("body", 1)):
        found = index.searcher().search(index.parse_query("hot tea", [field]), 1).hits[0][0]
        assert serp.features[:, column].max() == pytest.approx(SCHEMA.normalise([[found, found]])[0, column])
    assert serp.features[1, 0] == 0.0
    ranker.record_clicks(serp, [1])
    assert ranker.n_waiting == 1
    assert search(index, ranker, "wine")[1] == []


def test_langchain(ranker):
    """A compressor returns documents with their place, by which they are clicked; the retriever's are unchanged."""
    documents_of = library("langchain_core.documents")
    found = [documents_of.Document(page_content=body, metadata={"title": title}) for title, body in PAGES]
    reranker = recipe("with_langchain").LearnedReranker(
        ranker=ranker, features=lambda query, document: {"title": query in document.metadata["title"], "body": 2.0}
    )
    shown = reranker.compress_documents(found, "tea")
    assert [document.metadata["title"] for document in shown] == ["tea", "teapot", "coffee"]
    assert [document.metadata["position"] for document in shown] == [0, 1, 2]
    assert all("serp_id" not in document.metadata for document in found)
    ranker.record_clicks(shown[1].metadata["serp_id"], [shown[1].metadata["position"]])
    assert ranker.n_waiting == 1
    assert reranker.compress_documents([], "tea") == []


def test_llama_index(ranker):
    """A postprocessor returns nodes with their place, which no prompt has, best first by the index's score."""
    schema_of = library("llama_index.core.schema")
    nodes = [
        schema_of.NodeWithScore(node=schema_of.TextNode(text=body, metadata={"title": title}), score=score)
        for score, (title, body) in zip((0.1, 0.9, None), PAGES, strict=True)
    ]
    reranker = recipe("with_llama_index").LearnedReranker(
        ranker=ranker,
        features=lambda query, node: {"title": query in node.node.metadata["title"], "body": node.score or 0},
    )
    shown = reranker.postprocess_nodes(nodes, query_str="tea")
    assert [node.node.metadata["title"] for node in shown] == ["teapot", "tea", "coffee"]
    assert "serp_id" not in shown[0].node.get_content(schema_of.MetadataMode.LLM)
    assert all("serp_id" not in node.node.metadata for node in nodes)
    ranker.record_clicks(shown[1].node.metadata["serp_id"], [shown[1].node.metadata["position"]])
    assert ranker.n_waiting == 1
