package s3_test

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/sigv4"
)

// front is a server on a socket, called by plain HTTP.
type front struct {
	t    *testing.T
	root string
	url  string
	s3   *s3.Server
	http *httptest.Server
}

func start(t *testing.T, root string) *front {
	t.Helper()
	server, err := s3.New(config(root))
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, root: root, s3: server, http: httptest.NewServer(server)}
	f.url = f.http.URL
	t.Cleanup(f.stop)
	return f
}

func (f *front) stop() {
	f.http.Close()
	f.s3.Close()
}

// do sends a request with headers in pairs, and returns status, ETag and body.
func (f *front) do(method, path, body string, headers ...string) (int, string, string) {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client().Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if allowed := resp.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
		f.t.Errorf("%s %s: pages of %s may read the answer", method, path, allowed)
	}
	return resp.StatusCode, resp.Header.Get("ETag"), string(got)
}

func (f *front) want(status int, method, path, body string, headers ...string) (etag, got string) {
	f.t.Helper()
	code, etag, got := f.do(method, path, body, headers...)
	if code != status {
		f.t.Errorf("%s %s %v: %d %s, want %d", method, path, headers, code, got, status)
	}
	return etag, got
}

// TestFilesAreReadable: an object is a file of its name, and a file is an object.
func TestFilesAreReadable(t *testing.T) {
	f := start(t, filepath.Join(t.TempDir(), "not", "yet", "there"))
	f.want(200, "PUT", "/dev/cluster/ca.crt", "PEM")
	if got, err := os.ReadFile(filepath.Join(f.root, "cluster", "ca.crt")); err != nil || string(got) != "PEM" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if _, listed := f.want(200, "GET", "/dev?list-type=2", ""); !strings.Contains(listed, md5Of("PEM")[1:33]) {
		t.Errorf("listed %s", listed)
	}
	// After an edit by hand, in place and of the same size, ETag and body are current.
	if err := os.WriteFile(filepath.Join(f.root, "cluster", "ca.crt"), []byte("NEW"), 0o644); err != nil {
		t.Fatal(err)
	}
	if etag, got := f.want(200, "GET", "/dev/cluster/ca.crt", ""); got != "NEW" || etag != md5Of("NEW") {
		t.Errorf("got %q with etag %s", got, etag)
	}
	if _, listed := f.want(200, "GET", "/dev?list-type=2", ""); !strings.Contains(listed, md5Of("NEW")[1:33]) {
		t.Errorf("listed %s", listed)
	}
	f.want(412, "PUT", "/dev/cluster/ca.crt", "x", "If-Match", md5Of("PEM"))
	f.want(204, "DELETE", "/dev/cluster/ca.crt", "")
	if _, err := os.Stat(filepath.Join(f.root, "cluster")); !os.IsNotExist(err) {
		t.Errorf("the empty folder stays: %v", err)
	}
}

func md5Of(body string) string {
	sum := md5.Sum([]byte(body))
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

func TestRestart(t *testing.T) {
	root := t.TempDir()
	first := start(t, root)
	etag, _ := first.want(200, "PUT", "/dev/a/b", "one")
	first.stop()
	// The temporary file of a killed server.
	left := filepath.Join(root, ".dev-s3", "tmp", "left")
	if err := os.WriteFile(left, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	second := start(t, root)
	if again, got := second.want(200, "GET", "/dev/a/b", ""); got != "one" || again != etag {
		t.Errorf("after a restart: %q with etag %s, want one with %s", got, again, etag)
	}
	second.want(200, "PUT", "/dev/a/b", "two", "If-Match", etag)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("a temporary file outlives a restart: %v", err)
	}
}

// TestOneServerPerDirectory: two processes never judge preconditions on the same files.
func TestOneServerPerDirectory(t *testing.T) {
	f := start(t, t.TempDir())
	if _, err := s3.New(config(f.root)); err == nil || !strings.Contains(err.Error(), "held by another process") {
		t.Errorf("a second server: %v", err)
	}
}

// TestKeysThatAreRefused: no key reaches outside the directory or into the store's own folder, with
// any method.
func TestKeysThatAreRefused(t *testing.T) {
	outer := t.TempDir()
	f := start(t, filepath.Join(outer, "root"))
	secret := filepath.Join(outer, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outer, filepath.Join(f.root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"..%2Fsecret", "%2E%2E/secret", "a/..%2F..%2Fsecret", ".dev-s3/lock", ".dev-s3/tmp/x", "a%2F%2Fb", "a%00b", "link/secret",
	} {
		for _, verb := range []string{"GET", "HEAD", "PUT", "DELETE"} {
			code, _, got := f.do(verb, "/dev/"+key, "x")
			if code < 400 && verb != "DELETE" || strings.Contains(got, "secret\"") || got == "secret" {
				t.Errorf("%s %s: %d %s", verb, key, code, got)
			}
		}
	}
	for _, prefix := range []string{"..%2F", "link/", ".dev-s3/", "/", "%2E%2E"} {
		if _, _, listed := f.do("GET", "/dev?list-type=2&prefix="+prefix, ""); strings.Contains(listed, "<Key>") {
			t.Errorf("prefix %s lists %s", prefix, listed)
		}
	}
	if got, err := os.ReadFile(secret); err != nil || string(got) != "secret" {
		t.Errorf("the file outside is %q, %v", got, err)
	}
	if _, err := s3.New(config(f.root)); err == nil {
		t.Error("the lock file was lost")
	}
}

// TestKeysArePaths: of two keys that can't both be files, the second is refused with a proper
// error, and the first is kept.
func TestKeysArePaths(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/a", "file")
	if _, got := f.want(400, "PUT", "/dev/a/b", "below a file"); !strings.Contains(got, "keys are paths here") {
		t.Errorf("refused with %s", got)
	}
	f.want(200, "PUT", "/dev/d/e", "file")
	f.want(400, "PUT", "/dev/d", "over a folder")
	f.want(404, "GET", "/dev/d", "")
	f.want(404, "GET", "/dev/a/b", "")
	f.want(204, "DELETE", "/dev/d", "")
	f.want(200, "GET", "/dev/a", "")
	f.want(200, "GET", "/dev/d/e", "")
	f.want(204, "DELETE", "/dev/a", "")
	f.want(200, "PUT", "/dev/a/b", "now it may be a folder")
}

// TestStalledClient: a client that stalls in its body blocks no other, and a truncated body is not
// stored.
func TestStalledClient(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "old")
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	r := f.request("PUT", "/dev/k", "half a body")
	r.Header.Set(sigv4.SumHeader, sigv4.Unsigned)
	r.ContentLength = 100
	if err := signs().sign(r); err != nil {
		t.Fatal(err)
	}
	_ = r.Write(conn) // shorter than its Content-Length
	etag, _ := f.want(200, "PUT", "/dev/k", "new")
	f.want(200, "PUT", "/dev/other", "new")
	f.want(200, "GET", "/dev?list-type=2", "")
	conn.Close()
	f.http.Close() // waits until the stalled request was abandoned
	f.s3.Close()
	again := start(t, f.root)
	if now, got := again.want(200, "GET", "/dev/k", ""); got != "new" || now != etag {
		t.Errorf("a body cut short was stored: %q", got)
	}
}

func TestBadBodies(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(400, "PUT", "/dev/k", "body", "Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==") // of an empty body
	f.want(501, "PUT", "/dev/k", "5;chunk-signature=x\r\nhello\r\n0\r\n\r\n", "X-Amz-Content-Sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")
	f.want(404, "GET", "/dev/k", "")
	r := httptest.NewRequest(http.MethodPut, f.url+"/dev/k", http.NoBody)
	r.Header.Set("Content-Length", "100000000000")
	r.ContentLength = 100_000_000_000
	if err := signs().sign(r); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	f.s3.ServeHTTP(w, r)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "at most") {
		t.Errorf("a body of 100 GB: %d %s", w.Code, w.Body)
	}
}

func TestRanges(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "0123456789")
	for asked, want := range map[string]string{"bytes=2-4": "234", "bytes=7-": "789", "bytes=-2": "89", "bytes=8-100": "89"} {
		if _, got := f.want(206, "GET", "/dev/k", "", "Range", asked); got != want {
			t.Errorf("%s: %q, want %q", asked, got, want)
		}
	}
	f.want(416, "GET", "/dev/k", "", "Range", "bytes=10-12")
}

// TestFolders: listings of common tools, with a delimiter and in pages.
func TestFolders(t *testing.T) {
	f := start(t, t.TempDir())
	for _, k := range []string{"a-b", "a/1", "a/2", "b/x/1", "b/y", "c"} {
		f.want(200, "PUT", "/dev/"+k, k)
	}
	for query, want := range map[string]string{
		"delimiter=/":                         "<a-b><c>a/ b/",
		"delimiter=/&prefix=b/":               "<b/y>b/x/",
		"delimiter=/&prefix=a":                "<a-b>a/",
		"prefix=a/":                           "<a/1><a/2>",
		"delimiter=/&max-keys=2":              "<a-b>a/ +",
		"delimiter=/&max-keys=2&marker=a/":    "<c>b/",
		"delimiter=/&max-keys=3&start-after=": "<a-b>a/ b/ +",
		"max-keys=2&marker=a/1":               "<a/2><b/x/1>+",
	} {
		_, got := f.want(200, "GET", "/dev?"+query, "")
		if shown := show(got); shown != want {
			t.Errorf("%s: %s, want %s", query, shown, want)
		}
	}
}

// show abbreviates a listing's XML: <key>, prefix/, + if truncated.
func show(list string) string {
	var keys, prefixes []string
	for _, part := range strings.Split(list, "<Key>")[1:] {
		keys = append(keys, "<"+part[:strings.Index(part, "<")]+">")
	}
	for _, part := range strings.Split(list, "<CommonPrefixes>")[1:] {
		p := part[strings.Index(part, "<Prefix>")+len("<Prefix>"):]
		prefixes = append(prefixes, p[:strings.Index(p, "<")])
	}
	more := ""
	if strings.Contains(list, "<IsTruncated>true") {
		more = "+"
		if len(prefixes) > 0 {
			more = " +"
		}
	}
	return strings.Join(keys, "") + strings.Join(prefixes, " ") + more
}

func TestRequests(t *testing.T) {
	f := start(t, t.TempDir())
	f.want(200, "PUT", "/dev/k", "x")
	f.want(412, "PUT", "/dev/k", "x", "If-None-Match", "*")
	f.want(200, "GET", "/dev/k", "")
	f.want(200, "GET", "/dev?list-type=2&prefix=k", "")
	f.want(200, "GET", "/dev/", "")
	f.want(204, "DELETE", "/dev/k", "")
	_, got := f.want(200, "GET", s3.RequestsPath, "")
	f.want(405, "POST", s3.RequestsPath, "")
	var r s3.Requests
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"PUT": 2, "GET": 1, "LIST": 2, "DELETE": 1}
	if fmt.Sprint(r.ByMethod) != fmt.Sprint(want) || r.Total != 6 {
		t.Errorf("counted %+v, want %v", r, want)
	}
}

func TestOneBucket(t *testing.T) {
	f := start(t, t.TempDir())
	for _, path := range []string{"/other/k", "/other?list-type=2"} {
		if _, got := f.want(404, "GET", path, ""); !strings.Contains(got, "NoSuchBucket") {
			t.Errorf("%s: %s", path, got)
		}
	}
	f.want(409, "PUT", "/dev", "")
	f.want(400, "PUT", "/other", "")
	f.want(501, "DELETE", "/dev", "")
	if _, got := f.want(200, "GET", "/", ""); !strings.Contains(got, "<Name>dev</Name>") {
		t.Errorf("buckets: %s", got)
	}
	keys := s3.Key(keyID, secretKey, "")
	for _, cfg := range []s3.Config{
		{Bucket: "dev", Keys: keys}, {Root: t.TempDir(), Bucket: "A", Keys: keys}, {Root: t.TempDir(), Bucket: "-", Keys: keys},
		{Root: t.TempDir(), Bucket: "dev"},
	} {
		if _, err := s3.New(cfg); err == nil {
			t.Errorf("accepted %+v", cfg)
		}
	}
}

// FuzzPath: no path of a request, decoded or not, changes or reveals anything outside the
// directory.
func FuzzPath(f *testing.F) {
	for _, p := range []string{
		"/dev/a", "/dev/../x", "/dev/%2e%2e/x", "/dev/a/../../x", "//", "/dev//a", "/dev/.dev-s3/lock", "/dev/\x00", "/-/requests",
		"/dev?list-type=2&prefix=../",
	} {
		f.Add(p, "PUT")
		f.Add(p, "GET")
		f.Add(p, "DELETE")
	}
	outer, server := beside(f)
	f.Fuzz(func(t *testing.T, path, method string) {
		if method != "PUT" && method != "GET" && method != "DELETE" && method != "HEAD" {
			method = "GET"
		}
		u, err := url.ParseRequestURI(path)
		if err != nil {
			return
		}
		r := &http.Request{
			Method: method, URL: u, Header: http.Header{"Content-Length": {"4"}}, Body: io.NopCloser(strings.NewReader("body")), ContentLength: 4,
			Host: "127.0.0.1",
		}
		if err := signs().sign(r); err != nil {
			return
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r.WithContext(t.Context()))
		if bytes.Contains(w.Body.Bytes(), []byte("outside")) {
			t.Errorf("%s %q reads the file outside", method, path)
		}
		entries, err := os.ReadDir(outer)
		if got, readErr := os.ReadFile(filepath.Join(outer, "x")); err != nil || readErr != nil || len(entries) != 2 || string(got) != "outside" {
			t.Errorf("%s %q changed what is outside: %v, %q, %v, %v", method, path, entries, got, err, readErr)
		}
	})
}

// beside serves a bucket in a folder that has a file beside it, which must not be reachable.
func beside(f *testing.F) (outer string, server *s3.Server) {
	f.Helper()
	outer = f.TempDir()
	if err := os.WriteFile(filepath.Join(outer, "x"), []byte("outside"), 0o600); err != nil {
		f.Fatal(err)
	}
	server, err := s3.New(config(filepath.Join(outer, "root")))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { server.Close() })
	return outer, server
}

// waitFor polls until ok, for conditions in another process or on a socket.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
