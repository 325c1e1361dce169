package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// requests returns a request for each operation that succeeds.
func requests() map[string]httpRequest {
	create := `{"group": "jobs", "key": "nightly-7", "instance_type": "t3.small", "vars": {"n": 1}}`
	all := map[string]httpRequest{
		"health":           {method: "GET", path: "/health"},
		"status":           {method: "GET", path: "/status"},
		"shard-list":       {method: "GET", path: "/shards"},
		"config-status":    {method: "GET", path: "/config/status"},
		"config-diff":      {method: "GET", path: "/config/diff"},
		"config-diff-text": {method: "POST", path: "/config/diff?shard=one", body: `{"text": "{}"}`},
		"config-refresh":   {method: "POST", path: "/config/refresh?shard=one", body: `{}`},
		"group-list":       {method: "GET", path: "/groups"},
		"group-status":     {method: "GET", path: "/groups/web"},
		"group-put":        {method: "PUT", path: "/groups/web?shard=one", body: `{"size": 3}`},
		"group-scale":      {method: "POST", path: "/group/scale?shard=one", body: `{"group": "web", "size": 3}`},
		"group-abort":      {method: "POST", path: "/groups/web/abort?shard=one"},
		"group-retry":      {method: "POST", path: "/groups/web/retry?shard=one"},
		"group-delete":     {method: "DELETE", path: "/groups/jobs?shard=one&yes=true"},
		"instance-list":    {method: "GET", path: "/instances?deleted=true"},
		"instance-create":  {method: "POST", path: "/instances?shard=one", body: create},
		"instance-status":  {method: "GET", path: "/instances/" + someInstance},
		"instance-delete":  {method: "DELETE", path: "/instances/" + someInstance},
		"instance-drain":   {method: "POST", path: "/instances/" + someInstance + "/drain"},
		"instance-ack":     {method: "POST", path: "/instances/" + someInstance + "/ack"},
		"events":           {method: "GET", path: "/events"},
	}
	for id, r := range all {
		r.header = header("Authorization", "Bearer "+fullToken)
		all[id] = r
	}
	return all
}

// scenes are the servers that the requests go to.
type scenes struct {
	one, two              *shard
	normal, down, hanging *served // down: no shard has a leader; hanging: none answers
}

func newScenes(t *testing.T) *scenes {
	t.Helper()
	c, down, hanging := newFixture(t).register(), newFixture(t).register(), newFixture(t).register()
	s := &scenes{}
	s.one, s.two = c.twoShards()
	s.normal = c.serve(c.tokens()...)
	for _, id := range []string{"one", "two"} {
		down.shard(id).fail(status.Error(codes.Unavailable, "not now"))
		hanging.shard(id).hang()
	}
	// Well beyond the 5 s for which reads look for a leader: then it is the missing leader that ends them.
	s.down = down.serve(append(down.tokens(), "--request-timeout", "20s")...)
	s.hanging = hanging.serve(append(hanging.tokens(), "--request-timeout", "6s")...)
	return s
}

// produce makes a request that has a status, from one that succeeds.
func (s *scenes) produce(t *testing.T, code string, r httpRequest) answer {
	t.Helper()
	faults := map[string]codes.Code{
		"404": codes.NotFound, "409": codes.FailedPrecondition, "429": codes.ResourceExhausted, "500": codes.Internal,
		"502": codes.Unauthenticated,
	}
	switch code {
	case "200", "201", "202":
	case "207":
		r.path = strings.Replace(r.path, "shard=one", "all_shards=true", 1)
		s.two.fail(status.Error(codes.Internal, "its disk is full"))
	case "304":
		s.one.refresh = func() (*nstancev1.RefreshConfigResponse, error) {
			return &nstancev1.RefreshConfigResponse{Outcome: nstancev1.RefreshOutcome_REFRESH_OUTCOME_UNCHANGED}, nil
		}
	case "400":
		r.path += map[bool]string{true: "&", false: "?"}[strings.Contains(r.path, "?")] + "shrad=one"
	case "401":
		r.header.Del("Authorization")
	case "403":
		if r.header.Set("Authorization", "Bearer "+readToken); r.method == http.MethodGet {
			s.fail(status.Error(codes.PermissionDenied, "this operator may not"))
		}
	case "408":
		return s.stall(t, r)
	case "412":
		r.header.Set("If-Match", `"6-earlier"`)
	case "413":
		r.body = strings.Repeat(" ", 1<<20+1)
	case "415":
		r.header.Set("Content-Type", "text/plain")
	case "421":
		r.host = "rebound.example"
	case "503":
		return s.down.do(t, r)
	case "504":
		return s.hanging.do(t, r)
	default:
		fault, ok := faults[code]
		if !ok {
			t.Fatalf("no request has status %s", code)
		}
		s.fail(status.Error(fault, "as the test has it"))
	}
	return s.normal.do(t, r)
}

func (s *scenes) fail(err error) {
	s.one.fail(err)
	s.two.fail(err)
}

// stall sends a request whose body does not end.
func (s *scenes) stall(t *testing.T, r httpRequest) answer {
	addr := strings.TrimPrefix(s.normal.url, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		r.method, r.path, addr, r.header.Get("Authorization"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{resp.StatusCode, resp.Header, body}
}

// TestDocument: each status that the document has for an operation can be produced, and its
// body is as the document says.
func TestDocument(t *testing.T) {
	s := newScenes(t)
	d := s.normal.document(t)
	if d.OpenAPI != "3.1.0" {
		t.Errorf("OpenAPI %s, want 3.1.0", d.OpenAPI)
	}
	var slow sync.WaitGroup // they wait, and share no state
	defer slow.Wait()
	var seen []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			seen = append(seen, strings.ToUpper(method)+" "+path)
			for _, code := range slices.Sorted(maps.Keys(op.Responses)) {
				r, ok := requests()[op.ID]
				if !ok {
					t.Fatalf("no request for operation %s", op.ID)
				}
				check := func() { d.answers(t, op, code, s.produce(t, code, r)) }
				switch {
				case op.ID == "events" && code == "200": // TestEvents
				case code == "408" || code == "503" || code == "504":
					slow.Go(check)
				default:
					s.one.populate()
					s.two.populate()
					check()
				}
			}
		}
	}
	slices.Sort(seen)
	if want := []string{
		"DELETE /groups/{group}", "DELETE /instances/{id}", "GET /config/diff", "GET /config/status", "GET /events", "GET /groups",
		"GET /groups/{group}", "GET /health", "GET /instances", "GET /instances/{id}", "GET /shards", "GET /status", "POST /config/diff",
		"POST /config/refresh", "POST /group/scale", "POST /groups/{group}/abort", "POST /groups/{group}/retry", "POST /instances",
		"POST /instances/{id}/ack", "POST /instances/{id}/drain", "PUT /groups/{group}",
	}; !slices.Equal(seen, want) {
		t.Errorf("the document has %q, want %q", seen, want)
	}
}

// answers checks that an answer has a status, and what the document says of it.
func (d document) answers(t *testing.T, op documentOperation, code string, a answer) {
	if fmt.Sprint(a.status) != code {
		t.Errorf("%s: status %d, want %s: %s", op.ID, a.status, code, a.body)
		return
	}
	documented := op.Responses[code].Content
	if len(documented) == 0 {
		if len(a.body) > 0 {
			t.Errorf("%s: %s has a body that is not in the document: %s", op.ID, code, a.body)
		}
		return
	}
	media := a.header.Get("Content-Type")
	content, ok := documented[media]
	if !ok {
		t.Errorf("%s: %s is of type %q, want one of %v", op.ID, code, media, slices.Collect(maps.Keys(documented)))
		return
	}
	var value any
	if err := json.Unmarshal(a.body, &value); err != nil {
		t.Errorf("%s: %s: %v in %s", op.ID, code, err, a.body)
		return
	}
	for _, wrong := range d.check(op.ID+": "+code, content.Schema, value) {
		t.Errorf("%s, in %s", wrong, a.body)
	}
	if media == "application/problem+json" && a.problemText() == "" {
		t.Errorf("%s: %s says nothing: %s", op.ID, code, a.body)
	}
}
