package s3

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/nstance/nstance/pkg/object"
)

// explainPut is explain for a write that had a precondition.
func (s *Store) explainPut(err, absent error) error {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		return s.explain(err, absent)
	}
	switch answer.StatusCode {
	case http.StatusPreconditionFailed:
		return object.ErrConflict
	case http.StatusNotImplemented:
		return fmt.Errorf("%w: %w: %w", object.ErrUnknown, object.ErrNoConditionalWrites, err)
	}
	return s.explain(err, absent)
}

// explain turns a failure into one of the port's kinds. absent is what an answer
// that the key has no object means to the caller.
func (s *Store) explain(err, absent error) error {
	var answer minio.ErrorResponse
	known := errors.As(err, &answer)
	s.doubt(answer)
	if !known || answer.StatusCode != http.StatusNotFound {
		return fmt.Errorf("%w: %w", object.ErrUnknown, err)
	}
	// The client makes up these codes when there is no document; XMLName is only
	// set by a real one.
	switch document := answer.XMLName.Local == "Error"; {
	case document && answer.Code == minio.NoSuchKey && !errors.Is(absent, object.ErrUnknown):
		return absent
	case document && answer.Code == minio.NoSuchBucket:
		return fmt.Errorf("%w: bucket %q does not exist: %w", object.ErrUnknown, s.bucket, err)
	case !document:
		return fmt.Errorf("%w: 404 without an S3 error document, so perhaps not from an object store: %w", object.ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, err)
}
