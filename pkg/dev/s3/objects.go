package s3

import (
	"bytes"
	"crypto/md5" // the etag of S3
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// etag returns the object's ETag as S3 formats it.
func (o stored) etag() string { return `"` + hex.EncodeToString(o.sum[:]) + `"` }

// getObject leaves ranges and conditions to net/http, which implements them as S3 does (RFC 9110).
func (p *protocol) getObject(w http.ResponseWriter, r *http.Request, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	o, body, err := p.store.get(key)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", o.etag())
	w.Header().Set("Content-Type", "binary/octet-stream")
	http.ServeContent(w, r, "", o.modTime, bytes.NewReader(body))
	return nil
}

func (p *protocol) putObject(w http.ResponseWriter, r *http.Request, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	allowed, err := conditions(r.Header)
	if err != nil {
		return err
	}
	body, err := readObject(r)
	if err != nil {
		return err
	}
	if err := p.store.put(key, body, allowed); err != nil {
		return err
	}
	w.Header().Set("ETag", stored{sum: md5.Sum(body)}.etag())
	w.WriteHeader(http.StatusOK)
	return nil
}

// readObject returns a request's body. A truncated body and a wrong checksum are errors.
func readObject(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return nil, newRefusal(http.StatusLengthRequired, "MissingContentLength", "the length of the body is missing: want Content-Length")
	}
	if r.ContentLength > maxBody {
		return nil, newRefusal(http.StatusBadRequest, "InvalidArgument", "a body of %d bytes, at most %d are taken",
			r.ContentLength, int64(maxBody))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength+1))
	if err != nil || int64(len(body)) != r.ContentLength {
		return nil, newRefusal(http.StatusBadRequest, "IncompleteBody", "%d bytes of the body came, want %d (%v)",
			len(body), r.ContentLength, err)
	}
	sent := r.Header.Get("Content-Md5")
	if sent == "" {
		return body, nil
	}
	want, err := base64.StdEncoding.DecodeString(sent)
	if err != nil || len(want) != md5.Size {
		return nil, newRefusal(http.StatusBadRequest, "InvalidDigest", "Content-MD5 %.80q: want the MD5 in base64", sent)
	}
	if sum := md5.Sum(body); subtle.ConstantTimeCompare(sum[:], want) == 0 {
		return nil, newRefusal(http.StatusBadRequest, "BadDigest", "the body is not the one that Content-MD5 says")
	}
	return body, nil
}

// conditions returns a function that judges the preconditions of a write, given the current object
// or nil.
func conditions(h http.Header) (func(*stored) error, error) {
	match, none := h.Get("If-Match"), h.Get("If-None-Match")
	if none != "" && none != "*" {
		return nil, newRefusal(http.StatusNotImplemented, "NotImplemented", "If-None-Match %.80q: want * or no such header", none)
	}
	failed := func(why string) error {
		return newRefusal(http.StatusPreconditionFailed, "PreconditionFailed", "%s", why)
	}
	return func(now *stored) error {
		switch {
		case none != "" && now != nil:
			return failed("If-None-Match: the object exists already")
		case match != "" && now == nil:
			return failed("If-Match: there is no such object")
		case match != "" && strings.Trim(match, `"`) != strings.Trim(now.etag(), `"`):
			return failed("If-Match: the object has another etag")
		default:
			return nil
		}
	}, nil
}

type copyObjectResult struct {
	XMLName      xml.Name `xml:"CopyObjectResult"`
	Namespace    string   `xml:"xmlns,attr"`
	LastModified string
	ETag         string
}

// copyObject copies an object, within the bucket.
func (p *protocol) copyObject(w http.ResponseWriter, r *http.Request, key, source string) error {
	path, err := url.PathUnescape(source)
	if err != nil || strings.Contains(source, "?") {
		return newRefusal(http.StatusBadRequest, "InvalidArgument", "X-Amz-Copy-Source %.200q: want /bucket/key, and no version", source)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Amz-Copy-Source-") {
			return newRefusal(http.StatusNotImplemented, "NotImplemented", "the header %.80s", name)
		}
	}
	bucket, from, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if bucket != p.bucket {
		return noBucket(bucket)
	}
	if err := errors.Join(checkKey(from), checkKey(key)); err != nil {
		return err
	}
	allowed, err := conditions(r.Header)
	if err != nil {
		return err
	}
	_, body, err := p.store.get(from)
	if err != nil {
		return err
	}
	if err := p.store.put(key, body, allowed); err != nil {
		return err
	}
	o, err := p.store.stat(key)
	if err != nil {
		return err
	}
	return write(w, copyObjectResult{Namespace: namespace, LastModified: formatTime(o.modTime), ETag: o.etag()})
}

// formatTime formats a time as S3 does in XML.
func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// deleteObject succeeds for a missing object too, as S3 does.
func (p *protocol) deleteObject(key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return p.store.delete(key)
}

// maxDeletes is the maximum number of keys in one request.
const maxDeletes = 1000

type deleteResult struct {
	XMLName   xml.Name `xml:"DeleteResult"`
	Namespace string   `xml:"xmlns,attr"`
	Deleted   []objectKey
	Errors    []deleteError `xml:"Error"`
}

type objectKey struct{ Key string }

type deleteError struct{ Key, Code, Message string }

func (p *protocol) deleteObjects(w http.ResponseWriter, r *http.Request) error {
	if err := checkParameters(r, "delete"); err != nil {
		return err
	}
	body, err := readObject(r)
	if err != nil {
		return err
	}
	var asked struct {
		XMLName xml.Name `xml:"Delete"`
		Quiet   bool
		Object  []objectKey
	}
	if err := xml.Unmarshal(body, &asked); err != nil || len(asked.Object) == 0 || len(asked.Object) > maxDeletes {
		return newRefusal(http.StatusBadRequest, "MalformedXML", "the body names %d objects (%v): want 1 to %d, as Delete",
			len(asked.Object), err, maxDeletes)
	}
	result := deleteResult{Namespace: namespace}
	for _, one := range asked.Object {
		if err := p.deleteObject(one.Key); err != nil {
			answer := refusalOf(err)
			result.Errors = append(result.Errors, deleteError{one.Key, answer.Code, answer.Message})
		} else if !asked.Quiet {
			result.Deleted = append(result.Deleted, one)
		}
	}
	return write(w, result)
}
