package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nstance/nstance/pkg/sigv4"
)

const (
	// maxSkew is how far a client's clock may be off, as at S3.
	maxSkew = 15 * time.Minute
	// maxFramed is the maximum size of a body with the framing of its chunks, in bytes.
	maxFramed = maxBody + maxBody/16
	// maxUnhashed is the maximum size of a body whose hash is not in the headers, in bytes.
	maxUnhashed = 1 << 20
)

// refusal is an error reply of S3.
type refusal struct {
	XMLName struct{} `xml:"Error"`
	Code    string   `xml:"Code"`
	Message string   `xml:"Message"`
	status  int
}

func newRefusal(status int, code, format string, args ...any) *refusal {
	return &refusal{Code: code, Message: fmt.Sprintf(format, args...), status: status}
}

func (f *refusal) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(f.status)
	// The error is that of a client that has gone.
	_ = xml.NewEncoder(w).Encode(f)
}

// authenticate reads the request's body, and returns an error unless it is signed with one of the
// keys. The body is not read before the signature of the headers is verified.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request) *refusal {
	signed, err := sigv4.Parse(r)
	switch {
	case errors.Is(err, sigv4.ErrUnsigned):
		return newRefusal(http.StatusForbidden, "AccessDenied", "the request is not signed: want AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY to be those of this store, and the signature in the Authorization header")
	case err != nil:
		return newRefusal(http.StatusForbidden, "AccessDenied", "%v", err)
	case signed.Service != "s3":
		return newRefusal(http.StatusForbidden, "AccessDenied", "the request is signed for %.40s: want s3", signed.Service)
	}
	now := s.now()
	if now.Sub(signed.At).Abs() > maxSkew {
		return newRefusal(http.StatusForbidden, "RequestTimeTooSkewed", "the request is of %s, and it is %s here: want at most %s between them",
			signed.At.Format(time.RFC3339), now.UTC().Format(time.RFC3339), maxSkew)
	}
	secret, known := s.keys(signed.KeyID, signed.Token)
	if !known {
		return newRefusal(http.StatusForbidden, "InvalidAccessKeyId",
			"there is no access key %.80q with this token: want AWS_ACCESS_KEY_ID to be that of this store", signed.KeyID)
	}
	sum := r.Header.Get(sigv4.SumHeader)
	if sum == "" {
		if sum, err = hashBody(w, r); err != nil {
			return newRefusal(http.StatusBadRequest, "IncompleteBody", "the body can't be read: %v", err)
		}
	}
	if !signed.Check(r, secret, sum) {
		return newRefusal(http.StatusForbidden, "SignatureDoesNotMatch",
			"the signature is not that of the request: want AWS_SECRET_ACCESS_KEY to be that of this store")
	}
	return readBody(w, r, signed, secret, sum)
}

// hashBody reads the body of a request without a hash in its headers, as curl sends it, and returns
// the hash. The client is not authenticated yet, so the size is limited.
func hashBody(w http.ResponseWriter, r *http.Request) (sum string, err error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUnhashed))
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return sigv4.Sum(body), nil
}

var hexSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

// readBody reads a body and checks it against the signature.
func readBody(w http.ResponseWriter, r *http.Request, signed sigv4.Signature, secret, sum string) *refusal {
	if r.ContentLength > maxFramed {
		return newRefusal(http.StatusBadRequest, "InvalidArgument", "a body of %d bytes, at most %d are taken", r.ContentLength, int64(maxBody))
	}
	if sum != sigv4.Unsigned && sum != sigv4.Chunked && !hexSum.MatchString(sum) {
		return newRefusal(http.StatusNotImplemented, "NotImplemented", "a body sent as %.80q: want its SHA-256 in %s, or %s",
			sum, sigv4.SumHeader, sigv4.Chunked)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFramed))
	if err != nil {
		return newRefusal(http.StatusBadRequest, "IncompleteBody", "the body can't be read: %v", err)
	}
	switch sum {
	case sigv4.Unsigned:
	case sigv4.Chunked:
		if body, err = signed.Chunks(body, secret); err != nil {
			return newRefusal(http.StatusForbidden, "SignatureDoesNotMatch", "%v", err)
		}
		setPlainBody(r, body)
	default:
		if sigv4.Sum(body) != sum {
			return newRefusal(http.StatusBadRequest, "XAmzContentSHA256Mismatch", "the body is not the one that %s says", sigv4.SumHeader)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// setPlainBody rewrites a chunked request to one that was sent without chunks.
func setPlainBody(r *http.Request, body []byte) {
	r.Header.Set(sigv4.SumHeader, sigv4.Sum(body))
	r.Header.Del("X-Amz-Decoded-Content-Length")
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	encoding, _ := strings.CutPrefix(r.Header.Get("Content-Encoding"), "aws-chunked")
	if encoding = strings.TrimLeft(encoding, ", "); encoding == "" {
		r.Header.Del("Content-Encoding")
	} else {
		r.Header.Set("Content-Encoding", encoding)
	}
}
