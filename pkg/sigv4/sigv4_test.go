package sigv4_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nstance/nstance/pkg/sigv4"
)

var at = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// signed is a request as the SDK signs it.
func signed(t *testing.T, service, target, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.RequestURI = ""
	r.Header.Set("X-Amz-Target", "two  words")
	r.Header.Set(sigv4.SumHeader, sigv4.Sum([]byte(body)))
	keys := sdk.Credentials{AccessKeyID: "key-1", SecretAccessKey: "s3cret", SessionToken: "token"}
	err := v4.NewSigner().SignHTTP(t.Context(), keys, r, sigv4.Sum([]byte(body)), service, "eu-central-1", at, func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = service == "s3"
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestSDK: what AWS's own SDK has signed is signed, whatever its address is.
func TestSDK(t *testing.T) {
	for _, service := range []string{"ec2", "s3"} {
		for _, target := range []string{
			"http://127.0.0.1:1", "http://a.example/", "http://a.example/bucket/a%20key/%C3%A4+b~c=d,e",
			"http://a.example//a/?b=2&b=1&a&c=x%20y%2Bz~*",
		} {
			r := signed(t, service, target, "body")
			s, err := sigv4.Parse(r)
			if err != nil || s.KeyID != "key-1" || s.Region != "eu-central-1" || s.Service != service || s.Token != "token" || !s.At.Equal(at) {
				t.Errorf("%s %s: %+v, %v", service, target, s, err)
			}
			if !s.Check(r, "s3cret", sigv4.Sum([]byte("body"))) {
				t.Errorf("%s %s: does not match", service, target)
			}
		}
	}
}

// TestChanges: one thing changed, and it is signed no more.
func TestChanges(t *testing.T) {
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	replace := func(from, to string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), from, to, 1))
		}
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   string // of Parse; empty: Check fails
	}{
		"method":           {func(r *http.Request) { r.Method = http.MethodPut }, ""},
		"path":             {func(r *http.Request) { r.URL.Path = "/b/l" }, ""},
		"query":            {func(r *http.Request) { r.URL.RawQuery = "q=2" }, ""},
		"unreadable query": {func(r *http.Request) { r.URL.RawQuery = "q=1;x" }, ""},
		"host":             {func(r *http.Request) { r.Host = "evil.example" }, ""},
		"header":           {header("X-Amz-Target", "three"), ""},
		"time":             {header("X-Amz-Date", at.Add(time.Second).Format("20060102T150405Z")), ""},
		"region":           {replace("eu-central-1", "eu-central-2"), ""},
		"one more header":  {header("X-Amz-Acl", "public"), "x-amz-acl is not signed"},
		"host not signed":  {replace("host;", ""), "host is not signed"},
		"another day":      {header("X-Amz-Date", at.Add(24*time.Hour).Format("20060102T150405Z")), "differ"},
		"no date":          {func(r *http.Request) { r.Header.Del("X-Amz-Date") }, "differ"},
		"another scheme":   {header("Authorization", "Basic YTpi"), "Signature Version 4"},
		"two":              {func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) }, "want one Authorization"},
		"none":             {func(r *http.Request) { r.Header.Del("Authorization") }, sigv4.ErrUnsigned.Error()},
	} {
		r := signed(t, "s3", "http://a.example/b/k?q=1", "body")
		c.change(r)
		s, err := sigv4.Parse(r)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && err != nil {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if c.want == "" && s.Check(r, "s3cret", sigv4.Sum([]byte("body"))) {
			t.Errorf("%s: is signed", name)
		}
	}
	r := signed(t, "s3", "http://a.example/b/k?q=1", "body")
	s, err := sigv4.Parse(r)
	if err != nil || s.Check(r, "another", sigv4.Sum([]byte("body"))) || s.Check(r, "s3cret", sigv4.Sum([]byte("other"))) {
		t.Errorf("another secret or body counts: %v", err)
	}
	// A query that says it is signed is none.
	r = httptest.NewRequest(http.MethodGet, "/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature="+strings.Repeat("a", 64), nil)
	if _, err := sigv4.Parse(r); !errors.Is(err, sigv4.ErrUnsigned) {
		t.Errorf("a signed query: %v", err)
	}
}

// chunked is a request of a client that signs each chunk, and its body.
func chunked(t *testing.T, content string) (*http.Request, []byte) {
	t.Helper()
	var mu sync.Mutex
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if got, body = r.Clone(t.Context()), all; err != nil {
			t.Error(err)
		}
		w.Header().Set("ETag", `"x"`)
	}))
	defer server.Close()
	client, err := minio.New(strings.TrimPrefix(server.URL, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4("key-1", "s3cret", ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.PutObject(t.Context(), "bucket", "a key", strings.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got, body
}

// TestChunks: each chunk has to be signed, in its place, and nothing may follow.
func TestChunks(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 10_000) // three chunks
	r, body := chunked(t, content)
	if sum := r.Header.Get(sigv4.SumHeader); sum != sigv4.Chunked {
		t.Fatalf("the body came as %s", sum)
	}
	s, err := sigv4.Parse(r)
	if err != nil || !s.Check(r, "s3cret", sigv4.Chunked) {
		t.Fatalf("the request is not signed: %v", err)
	}
	got, err := s.Chunks(body, "s3cret")
	if err != nil || string(got) != content {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	end := bytes.LastIndex(body, []byte("0;chunk-signature="))
	second := bytes.Index(body[1:], []byte("10000;chunk-signature=")) + 1
	for name, bad := range map[string][]byte{
		"nothing":      nil,
		"no chunks":    []byte(content),
		"cut":          body[:end],
		"cut within":   body[:100],
		"more":         append(bytes.Clone(body), 'x'),
		"changed":      bytes.Replace(body, []byte("9abc"), []byte("9abd"), 1),
		"one left out": append(bytes.Clone(body[:second]), body[end:]...),
		"only the end": body[end:],
		"a long one":   []byte("ffffffff;chunk-signature=" + strings.Repeat("a", 64) + "\r\nx"),
	} {
		if got, err := s.Chunks(bad, "s3cret"); err == nil {
			t.Errorf("%s: %d bytes count", name, len(got))
		}
	}
	if _, err := s.Chunks(body, "another"); err == nil {
		t.Error("chunks signed with another key count")
	}
}

// FuzzAuthorization: no header makes a request signed that was not.
func FuzzAuthorization(f *testing.F) {
	f.Add("AWS4-HMAC-SHA256 Credential=k/20260203/us-east-1/s3/aws4_request,SignedHeaders=host;x-amz-date,Signature="+
		strings.Repeat("0", 64), "a=1")
	f.Add("AWS4-HMAC-SHA256 Credential=/20260203//s3/aws4_request, SignedHeaders=;, Signature=", "%zz;")
	f.Fuzz(func(t *testing.T, text, query string) {
		r := httptest.NewRequest(http.MethodGet, "/b/k", nil)
		r.URL.RawQuery = query
		r.Header["Authorization"], r.Header["X-Amz-Date"] = []string{text}, []string{"20260203T040506Z"}
		if s, err := sigv4.Parse(r); err == nil && s.Check(r, "s3cret", sigv4.Unsigned) {
			t.Errorf("%q signs", text)
		}
	})
}

// FuzzChunks: no body makes chunks that were not signed.
func FuzzChunks(f *testing.F) {
	f.Add([]byte("1;chunk-signature=" + strings.Repeat("a", 64) + "\r\nx\r\n0;chunk-signature=" + strings.Repeat("a", 64) + "\r\n\r\n"))
	f.Add([]byte("0;chunk-signature=\r\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, err := (sigv4.Signature{At: at}).Chunks(body, "s3cret"); err == nil {
			t.Errorf("%q counts as %q", body, got)
		}
	})
}
