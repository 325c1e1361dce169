package s3

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
)

// explainPut is explainWrite for a write with a precondition.
func (s *Store) explainPut(err, absent error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return s.explainWrite(err, absent)
	}
	switch answer.StatusCode {
	case http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %w", object.ErrConflict, s.answer(answer))
	case http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", s.explainWrite(err, absent), &object.Lack{
			Kind: object.ErrNoConditionalWrites, What: "a write with a precondition returns 501",
		})
	}
	return s.explainWrite(err, absent)
}

// explainWrite is explain for a write, which is sent once. A write that the store itself refuses
// has changed nothing.
func (s *Store) explainWrite(err, absent error) error {
	explained := s.explain(err, absent)
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && document(answer) && refusal(answer) {
		return fmt.Errorf("%w: %w", object.ErrRefused, s.answer(answer))
	}
	return explained
}

// explain maps a failure to one of package object's kinds. absent is the error for a missing
// object.
func (s *Store) explain(err, absent error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return fmt.Errorf("%w: %w", object.ErrUnknown, err)
	}
	s.doubt(answer)
	if document(answer) && answer.Code == minio.NoSuchKey && !errors.Is(absent, object.ErrUnknown) {
		return absent
	}
	said := s.answer(answer)
	if refusal(answer) {
		return object.Refused(said)
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, said)
}

// document reports whether the response has S3's error document. The client makes up codes if
// there is none; XMLName is only set by a real one.
func document(answer minio.ErrorResponse) bool { return answer.XMLName.Local == "Error" }

// refusal reports whether the same request would be refused again. A 404 without S3's error
// document is not the store's response: a starting proxy may return it.
func refusal(answer minio.ErrorResponse) bool {
	status := answer.StatusCode
	switch {
	case passes(answer.Code):
		return false
	case status == http.StatusNotFound:
		return document(answer) && answer.Code != minio.NoSuchKey
	case status == http.StatusMovedPermanently, status == http.StatusNotImplemented:
		return document(answer)
	}
	passing := []int{http.StatusRequestTimeout, http.StatusConflict, http.StatusPreconditionFailed, http.StatusTooManyRequests}
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && !slices.Contains(passing, status)
}

// passes reports whether a refusal with this code may be temporary: expired keys, a clock that
// is being set, a body that was truncated or changed in transit.
func passes(code string) bool {
	return awsclient.ExpiredCode(code) || slices.Contains([]string{
		"RequestTimeTooSkewed", "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "SlowDown",
	}, code)
}

// answer returns the store's response.
func (s *Store) answer(answer minio.ErrorResponse) *object.Answer {
	said := &object.Answer{
		Bucket: cmp.Or(answer.BucketName, s.bucket), Status: answer.StatusCode, Code: answer.Code, Message: answer.Message,
	}
	switch {
	case !document(answer):
		said.Code = ""
		said.Message = cmp.Or(answer.Message, http.StatusText(answer.StatusCode)) +
			"; the response has no S3 error document, so it is probably not from an object store"
	case answer.Code == minio.NoSuchBucket:
		said.Message = fmt.Sprintf("the bucket does not exist: %s", answer.Message)
	}
	return said
}
