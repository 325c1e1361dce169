package s3_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/s3"
)

// wire is a server that records requests and sends scripted responses.
type wire struct {
	url string

	mu       sync.Mutex
	requests []request
}

type request struct {
	method, path, query string
	header              http.Header
	body                string
}

func newWire(t *testing.T, answer http.HandlerFunc) *wire {
	t.Helper()
	w := &wire{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.requests = append(w.requests, request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), string(body)})
		w.mu.Unlock()
		answer(rw, r)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *wire) sent() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]request{}, w.requests...)
}

func document(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>m</Message></Error>", code)
	}
}

func applied(w http.ResponseWriter, _ *http.Request) { w.Header().Set("ETag", `"new"`) }

// TestPutHeaders checks what safety depends on: the precondition, the digests, and a single
// request with the unchanged body.
func TestPutHeaders(t *testing.T) {
	const body = "body\r\nof an object"
	sum, digest := md5.Sum([]byte(body)), sha256.Sum256([]byte(body))
	for name, c := range map[string]struct {
		pre                object.Precondition
		match, absentMatch string
	}{
		"always":    {object.Precondition{}, "", ""},
		"if-absent": {object.IfAbsent(), "", "*"},
		"if-match":  {object.IfMatch("9e107d9d372bb6826bd81d3542a419d6"), `"9e107d9d372bb6826bd81d3542a419d6"`, ""},
	} {
		w := newWire(t, applied)
		s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
		etag, err := s.Put(t.Context(), "a/b c", []byte(body), c.pre)
		if err != nil || etag != "new" {
			t.Errorf("%s: etag %q, %v", name, etag, err)
		}
		sent := w.sent()
		if len(sent) != 1 {
			t.Fatalf("%s: %d requests, want one: %v", name, len(sent), sent)
		}
		r := sent[0]
		if r.method != http.MethodPut || r.path != "/bucket/a/b c" || r.body != body {
			t.Errorf("%s: sent %s %s with body %q", name, r.method, r.path, r.body)
		}
		for header, want := range map[string]string{
			"If-Match":             c.match,
			"If-None-Match":        c.absentMatch,
			"Content-Md5":          base64.StdEncoding.EncodeToString(sum[:]),
			"X-Amz-Content-Sha256": hex.EncodeToString(digest[:]),
		} {
			if got := strings.Join(r.header.Values(header), ", "); got != want {
				t.Errorf("%s: header %s is %q, want %q", name, header, got, want)
			}
		}
		signed := r.header.Get("Authorization")
		if !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 ") || strings.Contains(signed, "secret") {
			t.Errorf("%s: authorization is %q", name, signed)
		}
		for _, h := range []string{"if-match", "if-none-match"} {
			if r.header.Get(h) != "" && !strings.Contains(signed, h) {
				t.Errorf("%s: %s is not signed: %q", name, h, signed)
			}
		}
	}
}

func hangUp(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

// checkPut checks what is made of an answer to a Put that was sent so often.
func checkPut(t *testing.T, pre object.Precondition, err, want error, contains string, sent int) {
	t.Helper()
	if !errors.Is(err, want) || errors.Is(err, object.ErrConflict) != errors.Is(want, object.ErrConflict) ||
		errors.Is(err, object.ErrNotFound) {
		t.Errorf("precondition %+v: %v, want %v", pre, err, want)
	}
	// A refusal is proof that nothing was changed, and nothing else is.
	refused := errors.Is(want, object.ErrRefused) || errors.Is(want, object.ErrNoConditionalWrites)
	if errors.Is(err, object.ErrRefused) != refused || errors.Is(err, object.ErrUnknown) != errors.Is(want, object.ErrUnknown) {
		t.Errorf("precondition %+v: %v, want refused: %t", pre, err, refused)
	}
	if !strings.Contains(fmt.Sprint(err), contains) {
		t.Errorf("precondition %+v: %v does not say %q", pre, err, contains)
	}
	if sent != 1 {
		t.Errorf("precondition %+v: %d requests, want exactly one", pre, sent)
	}
}

// TestPutAnswers holds how each answer is read, and that no answer makes the
// client send a write twice.
func TestPutAnswers(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		absent   error // with if-absent
		match    error // with if-match
		always   error
		contains string
	}{
		"412":      {document(412, "PreconditionFailed"), object.ErrConflict, object.ErrConflict, object.ErrUnknown, ""},
		"412 bare": {status(412), object.ErrConflict, object.ErrConflict, object.ErrUnknown, ""},
		"404 key":  {document(404, "NoSuchKey"), object.ErrUnknown, object.ErrConflict, object.ErrUnknown, ""},
		"404 bucket": {document(404, "NoSuchBucket"), object.ErrRefused, object.ErrRefused, object.ErrRefused,
			`bucket "bucket": 404 NoSuchBucket: the bucket does not exist`},
		"404 bare": {status(404), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, "not from an object store"},
		"409":      {document(409, "ConditionalRequestConflict"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"403":      {document(403, "AccessDenied"), object.ErrRefused, object.ErrRefused, object.ErrRefused, "403 AccessDenied: m"},
		"400":      {document(400, "InvalidArgument"), object.ErrRefused, object.ErrRefused, object.ErrRefused, ""},
		"501": {document(501, "NotImplemented"), object.ErrNoConditionalWrites, object.ErrNoConditionalWrites,
			object.ErrRefused, ""},
		"500":              {document(500, "InternalError"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"503":              {document(503, "SlowDown"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"429":              {status(429), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"wrong region":     {document(400, "AuthorizationHeaderMalformed"), object.ErrRefused, object.ErrRefused, object.ErrRefused, ""},
		"wrong endpoint":   {document(301, "PermanentRedirect"), object.ErrRefused, object.ErrRefused, object.ErrRefused, ""},
		"expired keys":     {document(400, "ExpiredToken"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"cut off":          {document(400, "IncompleteBody"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"408":              {status(408), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"clock is off":     {document(403, "RequestTimeTooSkewed"), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"connection cut":   {hangUp, object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"200 without etag": {status(200), object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, "ETag"},
		"redirect": {http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect).ServeHTTP,
			object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"not even HTTP":     {garbage, object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
		"412 half a answer": {half, object.ErrUnknown, object.ErrUnknown, object.ErrUnknown, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for pre, want := range map[object.Precondition]error{
				object.IfAbsent(): c.absent, object.IfMatch("e"): c.match, {}: c.always,
			} {
				w := newWire(t, c.answer)
				s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url, RequestTimeout: time.Minute})
				_, err := s.Put(t.Context(), "k", []byte("x"), pre)
				checkPut(t, pre, err, want, c.contains, len(w.sent()))
			}
		})
	}
}

// TestPutWithoutAnswer: a write that is not answered in time is sent once, too, and its
// outcome is unknown.
func TestPutWithoutAnswer(t *testing.T) {
	for _, pre := range []object.Precondition{object.IfAbsent(), object.IfMatch("e"), {}} {
		synctest.Test(t, func(t *testing.T) {
			const timeout = 200 * time.Millisecond
			var sent atomic.Int32
			hangs := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					for in := bufio.NewReader(far); ; {
						r, err := http.ReadRequest(in)
						if err != nil {
							return
						}
						sent.Add(1)
						_, _ = io.Copy(io.Discard, r.Body)
					}
				}()
				return near, nil
			}}
			defer hangs.CloseIdleConnections()
			s := open(t, s3.Config{Bucket: "bucket", Endpoint: "http://127.0.0.1", Transport: hangs, RequestTimeout: timeout})
			began := time.Now()
			_, err := s.Put(t.Context(), "k", []byte("x"), pre)
			if took := time.Since(began); took != timeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("precondition %+v: %v after %s", pre, err, took)
			}
			checkPut(t, pre, err, object.ErrUnknown, "", int(sent.Load()))
		})
	}
}

func garbage(w http.ResponseWriter, _ *http.Request) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		fmt.Fprint(conn, "SSH-2.0-OpenSSH_9.2\r\n")
		conn.Close()
	}
}

// half announces a body and closes the connection.
func half(w http.ResponseWriter, _ *http.Request) {
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		fmt.Fprint(conn, "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 1000\r\n\r\n<Error>")
		conn.Close()
	}
}

// TestRefusedByAProxy: a refusal that is not the store's own ends retries, but proves nothing
// about a write.
func TestRefusedByAProxy(t *testing.T) {
	w := newWire(t, func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, "<html>forbidden</html>", http.StatusForbidden)
	})
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	_, err := object.PutConfirmed(t.Context(), s, "k", []byte("x"), object.IfAbsent())
	if !errors.Is(err, object.ErrRefused) || !errors.Is(err, object.ErrUnknown) || !strings.Contains(err.Error(), "no S3 error document") {
		t.Errorf("settle: %v, want refused and unknown", err)
	}
}

// TestPutOnReusedConnection cuts the connection during the second write: the transport must not
// resend it.
func TestPutOnReusedConnection(t *testing.T) {
	n := 0
	w := newWire(t, func(rw http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			applied(rw, r)
			return
		}
		hangUp(rw, r)
	})
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	if _, err := s.Put(t.Context(), "k", []byte("x"), object.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	for i, body := range []string{"y", ""} {
		if _, err := s.Put(t.Context(), "k", []byte(body), object.IfMatch("new")); !errors.Is(err, object.ErrUnknown) {
			t.Errorf("put on a cut connection: %v", err)
		}
		if got := len(w.sent()); got != 2+i {
			t.Errorf("%d requests after %d puts", got, 2+i)
		}
	}
}

// TestUnsendableETags: an etag that would change the header's meaning is a conflict, and is not
// sent.
func TestUnsendableETags(t *testing.T) {
	w := newWire(t, applied)
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	for _, etag := range []object.ETag{"", "*", `a", "b`, "a b", "a\r\nX-Evil: 1", "é"} {
		if _, err := s.Put(t.Context(), "k", nil, object.IfMatch(etag)); !errors.Is(err, object.ErrConflict) {
			t.Errorf("if-match of %q: %v, want a conflict", etag, err)
		}
	}
	if n := len(w.sent()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestGetAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer   http.HandlerFunc
		want     error
		requests int
		contains string
	}{
		"404 key":        {document(404, "NoSuchKey"), object.ErrNotFound, 1, ""},
		"404 bucket":     {document(404, "NoSuchBucket"), object.ErrRefused, 1, `bucket "bucket": 404 NoSuchBucket`},
		"404 of a proxy": {http.NotFound, object.ErrUnknown, 1, "not from an object store"},
		"403":            {document(403, "AccessDenied"), object.ErrRefused, 1, `bucket "bucket": 403 AccessDenied`},
		"501":            {document(501, "NotImplemented"), object.ErrRefused, 1, ""},
		"408":            {document(408, "RequestTimeout"), object.ErrUnknown, 3, ""},
		"500":            {document(500, "InternalError"), object.ErrUnknown, 3, ""},
		"cut":            {hangUp, object.ErrUnknown, 3, ""},
		"login page":     {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>log in</html>") }, object.ErrUnknown, 1, ""},
		"short body": {func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nLast-Modified: Mon, 02 Jan 2006 15:04:05 GMT\r\nContent-Length: 10\r\n\r\nhalf")
				conn.Close()
			}
		}, object.ErrUnknown, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, c.answer)
			s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
			_, err := s.Get(t.Context(), "k")
			if !errors.Is(err, c.want) || errors.Is(err, object.ErrNotFound) == errors.Is(err, object.ErrUnknown) ||
				errors.Is(err, object.ErrRefused) != errors.Is(c.want, object.ErrRefused) || !strings.Contains(err.Error(), c.contains) {
				t.Errorf("get: %v, want %v that says %q", err, c.want, c.contains)
			}
			// The transport may also retry a read of a cut connection.
			if n := len(w.sent()); n < c.requests || c.requests == 1 && n != 1 {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
		})
	}
}

// TestReadsComeThrough: a read survives a temporary failure.
func TestReadsComeThrough(t *testing.T) {
	n := 0
	w := newWire(t, func(rw http.ResponseWriter, r *http.Request) {
		if n++; n == 1 {
			document(503, "SlowDown")(rw, r)
			return
		}
		rw.Header().Set("ETag", `"e"`)
		rw.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		fmt.Fprint(rw, "body")
	})
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	o, err := s.Get(t.Context(), "k")
	if err != nil || string(o.Body) != "body" || o.ETag != "e" || o.ModTime.Year() != 2006 {
		t.Errorf("get = %+v, %v", o, err)
	}
}

func TestListAnswers(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"404 bucket": document(404, "NoSuchBucket"),
		"404 bare":   http.NotFound,
		"403":        document(403, "AccessDenied"),
		"not a list": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") },
		"other XML":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<ListAllMyBucketsResult/>") },
		"cut short": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>a</Key>")
		},
		"no etag": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>")
		},
		"empty": func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, answer)
			s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
			page, err := s.List(t.Context(), "", "")
			if !errors.Is(err, object.ErrUnknown) || errors.Is(err, object.ErrNotFound) {
				t.Errorf("%v, %v: a list that could not be had must not look empty", page, err)
			}
		})
	}
}

// TestPagesByEitherToken: a listing is complete from a store that honours only continuation
// tokens, and from one that honours only start-after.
func TestPagesByEitherToken(t *testing.T) {
	keys := []string{"p/a", "p/b", "p/c", "p/d", "p/e"}
	for _, honoured := range []string{"start-after", "continuation-token"} {
		w := newWire(t, func(rw http.ResponseWriter, r *http.Request) {
			after := r.URL.Query().Get(honoured)
			var left []string
			for _, k := range keys {
				if k > after {
					left = append(left, k)
				}
			}
			page := left[:min(2, len(left))]
			fmt.Fprint(rw, "<ListBucketResult>")
			for _, k := range page {
				fmt.Fprintf(rw, "<Contents><Key>%s</Key><ETag>\"e\"</ETag></Contents>", k)
			}
			if len(left) > len(page) {
				fmt.Fprintf(rw, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", page[1])
			}
			fmt.Fprint(rw, "</ListBucketResult>")
		})
		s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
		all, err := object.All(object.WithPageSize(t.Context(), 2), s, "p/")
		if err != nil || len(all) != len(keys) || len(w.sent()) != 3 {
			t.Errorf("%s: %v, %v, %d requests", honoured, all, err, len(w.sent()))
		}
		if q := w.sent()[1].query; !strings.Contains(q, "max-keys=2") || !strings.Contains(q, "prefix=p%2F") {
			t.Errorf("%s: asked for %s", honoured, q)
		}
	}
}

// TestHugePage: the response to a listing is bounded.
func TestHugePage(t *testing.T) {
	w := newWire(t, func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, "<ListBucketResult>")
		for range 3 * 7 { // of a megabyte
			if _, err := rw.Write(bytes.Repeat([]byte("<Prefix></Prefix>"), 1<<16)); err != nil {
				return
			}
		}
		fmt.Fprint(rw, "</ListBucketResult>")
	})
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	if _, err := s.List(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("list: %v", err)
	}
}

// TestUnusableETags: etags that can't be used in a precondition are reported, and end
// PutConfirmed at once.
func TestUnusableETags(t *testing.T) {
	for header, want := range map[string]string{"": "an object has no ETag", `W/"abc"`: "ETags are weak"} {
		w := newWire(t, func(rw http.ResponseWriter, _ *http.Request) {
			if header != "" {
				rw.Header().Set("ETag", header)
			}
		})
		s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
		_, err := object.PutConfirmed(t.Context(), s, "k", []byte("x"), object.IfAbsent())
		if !errors.Is(err, object.ErrUnfit) || !errors.Is(err, object.ErrUnknown) || object.Reason(err) != want {
			t.Errorf("ETag %q: %v, want %q", header, err, want)
		}
	}
}

// TestDeadline: the caller's deadline ends a hanging request, and is in the error.
func TestDeadline(t *testing.T) {
	w := newWire(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := open(t, s3.Config{Bucket: "bucket", Endpoint: w.url})
	for name, call := range map[string]func(context.Context) error{
		"get":    func(ctx context.Context) error { _, err := s.Get(ctx, "k"); return err },
		"put":    func(ctx context.Context) error { _, err := s.Put(ctx, "k", []byte("x"), object.IfAbsent()); return err },
		"delete": func(ctx context.Context) error { return s.Delete(ctx, "k") },
		"list":   func(ctx context.Context) error { _, err := s.List(ctx, "", ""); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		if !errors.Is(err, object.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want unknown and deadline exceeded", name, err)
		}
	}
}

// canned returns one body to every request.
type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{}, ContentLength: int64(len(c)), Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// FuzzListing: whatever a server returns, a listing is an error or has complete entries, and
// nothing else is taken for a listing.
func FuzzListing(f *testing.F) {
	for _, body := range []string{
		"", "<", "<html/>", "<ListBucketResult/>", "<?xml version=\"1.0\"?><ListBucketResult></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a%2Fb</Key><ETag>\"e\"</ETag><Size>3</Size></Contents>" +
			"<EncodingType>url</EncodingType></ListBucketResult>",
		"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "<Error><Code>NoSuchBucket</Code></Error>",
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel() // a repeated page is an endless listing, bounded by ctx
		s := open(t, s3.Config{Bucket: "bucket", Endpoint: "https://canned", Transport: canned(body)})
		page, err := s.List(ctx, "", "")
		switch {
		case err != nil && !errors.Is(err, object.ErrUnknown):
			t.Errorf("%v, want ErrUnknown", err)
		case err == nil && !bytes.Contains(body, []byte("ListBucketResult")):
			t.Errorf("took %q for a listing", body)
		}
		for _, o := range page.Objects {
			if o.Key == "" || o.ETag == "" {
				t.Errorf("listed %+v", o)
			}
		}
	})
}
