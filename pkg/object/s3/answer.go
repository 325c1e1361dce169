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

// explainPut is explainWrite for a write that had a precondition.
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
			Kind: object.ErrNoConditionalWrites, What: "a write with a precondition is answered 501",
		})
	}
	return s.explainWrite(err, absent)
}

// explainWrite is explain for a request that changes something, and that is sent
// once. What the store itself refuses has changed nothing.
func (s *Store) explainWrite(err, absent error) error {
	explained := s.explain(err, absent)
	var answer minio.ErrorResponse
	if errors.As(err, &answer) && document(answer) && refusal(answer) {
		return fmt.Errorf("%w: %w", object.ErrRefused, s.answer(answer))
	}
	return explained
}

// explain turns a failure into one of the port's kinds. absent is what an answer
// that the key has no object means to the caller.
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
		return fmt.Errorf("%w: %w: %w", object.ErrRefused, object.ErrUnknown, said)
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, said)
}

// document reports whether the answer has S3's error document. The client makes up
// codes when there is none; XMLName is only set by a real one.
func document(answer minio.ErrorResponse) bool { return answer.XMLName.Local == "Error" }

// refusal reports whether the same request would be refused again. A 404 without
// S3's error document is not the store's answer: a proxy that starts answers so.
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

// passes reports whether a refusal with this code may be over at the next attempt:
// keys that are asked for again, a clock that is being set, a body that was cut off
// or changed on its way.
func passes(code string) bool {
	return awsclient.ExpiredCode(code) || slices.Contains([]string{
		"RequestTimeTooSkewed", "RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch", "SlowDown",
	}, code)
}

// answer is what the store said.
func (s *Store) answer(answer minio.ErrorResponse) *object.Answer {
	said := &object.Answer{
		Bucket: cmp.Or(answer.BucketName, s.bucket), Status: answer.StatusCode, Code: answer.Code, Message: answer.Message,
	}
	switch {
	case !document(answer):
		said.Code = ""
		said.Message = cmp.Or(answer.Message, http.StatusText(answer.StatusCode)) +
			"; the answer has no S3 error document, so it is perhaps not from an object store"
	case answer.Code == minio.NoSuchBucket:
		said.Message = fmt.Sprintf("the bucket does not exist: %s", answer.Message)
	}
	return said
}
