package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/rpc"
)

// TestServePartialAnswers: while one of two shards refuses, such as one that does not serve the
// tenant, an answer says that it lacks that shard, and never that something does not exist.
func TestServePartialAnswers(t *testing.T) {
	c := newFixture(t).register()
	one, two := c.twoShards()
	s := c.serve()
	const absent, failed = "knd01h455vb4pex5vsknk084sn02q", `"failed":[{"shard":"two","status":409`
	two.fail(rpc.Precondition.Errorf("the tenant is not declared"))
	for _, tt := range []struct {
		request, body string
		status        int
		text          string
	}{
		{"GET /groups", ``, http.StatusMultiStatus, failed},
		{"GET /groups/web", ``, http.StatusMultiStatus, failed},
		{"GET /groups/none", ``, http.StatusMultiStatus, `{"answers":[],` + failed},
		{"GET /instances", ``, http.StatusMultiStatus, failed},
		{"GET /instances/" + absent, ``, http.StatusConflict, "not declared"},
		{"DELETE /instances/" + absent, ``, http.StatusConflict, "not declared"},
		{"POST /instances/" + absent + "/ack", `{}`, http.StatusConflict, "not declared"},
		{"GET /instances/" + someInstance, ``, http.StatusOK, `"shard":"one"`},
		{"POST /group/scale?all_shards=true", `{"group": "jobs", "size": 0}`, http.StatusConflict, "not declared"},
		{"DELETE /groups/jobs?all_shards=true", ``, http.StatusConflict, "not declared"},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		a := s.call(t, method, path, tt.body).want(t, tt.status, tt.text)
		if etag := a.header.Get("ETag"); etag != "" {
			t.Errorf("%s: ETag %s of a part", tt.request, etag)
		}
	}
	if n := len(one.changes()); n != 0 {
		t.Fatalf("%d changes that were confirmed by a part of the instances, want none", n)
	}
	s.call(t, "DELETE", "/groups/jobs?all_shards=true&yes=true", ``).want(t, http.StatusMultiStatus, `"deleting_in":["one"]`, failed)
}
