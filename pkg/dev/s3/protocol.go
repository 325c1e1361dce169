package s3

import (
	"encoding/xml"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/object"
)

// maxBody is the maximum size of an object, in bytes: it is held in memory.
const maxBody = 64 << 20

// namespace is the XML namespace of all replies.
const namespace = "http://s3.amazonaws.com/doc/2006-03-01/"

// protocol implements S3's operations on the bucket and its objects. It refuses parameters that
// belong to other operations.
type protocol struct {
	bucket string
	store  *store
	log    *slog.Logger
}

// ServeHTTP implements http.Handler.
func (p *protocol) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := p.serve(w, r)
	if err == nil {
		return
	}
	answer := refusalOf(err)
	level := slog.LevelDebug
	if answer.status >= http.StatusInternalServerError && answer.status != http.StatusNotImplemented {
		level = slog.LevelWarn
	}
	p.log.LogAttrs(r.Context(), level, "s3 request failed", slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.String("code", answer.Code), slog.Any("error", err))
	answer.write(w) // net/http drops the body of a HEAD
}

// Error implements error.
func (f *refusal) Error() string { return f.Code + ": " + f.Message }

// refusalOf returns the S3 error for an error.
func refusalOf(err error) *refusal {
	var own *refusal
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, errNoKey):
		return newRefusal(http.StatusNotFound, "NoSuchKey", "there is no such key")
	case errors.Is(err, object.ErrInvalidKey), errors.Is(err, errKeyIsPath):
		return newRefusal(http.StatusBadRequest, "InvalidArgument", "%v", err)
	default:
		return newRefusal(http.StatusInternalServerError, "InternalError", "%v", err)
	}
}

// serve writes a reply, or returns an error before anything is written.
func (p *protocol) serve(w http.ResponseWriter, r *http.Request) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case bucket == "":
		return p.listBuckets(w, r)
	case key == "":
		return p.serveBucket(w, r, bucket)
	case bucket != p.bucket:
		return noBucket(bucket)
	}
	if err := checkParameters(r); err != nil {
		return err
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		return p.getObject(w, r, key)
	case http.MethodPut:
		if source := r.Header.Get("X-Amz-Copy-Source"); source != "" {
			return p.copyObject(w, r, key, source)
		}
		return p.putObject(w, r, key)
	case http.MethodDelete:
		if err := p.deleteObject(key); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return newRefusal(http.StatusNotImplemented, "NotImplemented", "%.20s of an object", r.Method)
	}
}

func (p *protocol) serveBucket(w http.ResponseWriter, r *http.Request, name string) error {
	switch {
	case r.Method == http.MethodPut && name == p.bucket:
		return newRefusal(http.StatusConflict, "BucketAlreadyExists", "the bucket %s exists already", name)
	case r.Method == http.MethodPut:
		return newRefusal(http.StatusBadRequest, "TooManyBuckets", "this store has one bucket, %q", p.bucket)
	case name != p.bucket:
		return noBucket(name)
	case r.Method == http.MethodHead:
		return checkParameters(r)
	case r.Method == http.MethodGet && r.URL.Query().Has("location"):
		return p.getLocation(w, r)
	case r.Method == http.MethodGet && r.URL.Query().Has("lifecycle"):
		return newRefusal(http.StatusNotFound, "NoSuchLifecycleConfiguration", "the bucket %s has no rules", name)
	case r.Method == http.MethodGet:
		return p.listObjects(w, r)
	case r.Method == http.MethodPost && r.URL.Query().Has("delete"):
		return p.deleteObjects(w, r)
	default:
		return newRefusal(http.StatusNotImplemented, "NotImplemented", "%.20s of the bucket", r.Method)
	}
}

// getLocation returns us-east-1.
func (p *protocol) getLocation(w http.ResponseWriter, r *http.Request) error {
	if err := checkParameters(r, "location"); err != nil {
		return err
	}
	return write(w, location{Namespace: namespace})
}

func noBucket(name string) error {
	return newRefusal(http.StatusNotFound, "NoSuchBucket", "there is no bucket %.80q", name)
}

// checkParameters refuses requests with other parameters than these. SDKs send x-id, the name of
// the operation.
func checkParameters(r *http.Request, names ...string) error {
	for name := range r.URL.Query() {
		if name != "x-id" && !slices.Contains(names, name) {
			return newRefusal(http.StatusNotImplemented, "NotImplemented", "the parameter %.80q", name)
		}
	}
	return nil
}

// write sends a reply, whose root element is named by its type.
func write(w http.ResponseWriter, answer any) error {
	text, err := xml.Marshal(answer)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/xml")
	_, _ = w.Write(append([]byte(xml.Header), text...)) // the error is that of a client that has gone
	return nil
}
