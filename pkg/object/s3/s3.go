// Package s3 stores objects in an AWS S3 bucket, or in any S3-compatible store that honours
// conditional writes: MinIO, Ceph RGW, SeaweedFS, the S3 API of Google Cloud Storage.
// object.Probe checks whether a given store does.
//
// A Put is one request with If-Match or If-None-Match: * (RFC 9110, section 13.1) and is sent
// once; its body is signed and has an MD5, so that it is stored as sent. Responses are mapped
// as follows:
//
//	200                       applied
//	412                       ErrConflict
//	404 NoSuchKey, if-match   ErrConflict: the object is absent
//	409                       ErrUnknown: the store did not evaluate the precondition,
//	                          because another request was in flight; PutConfirmed retries
//	404 NoSuchBucket, 403, other 4xx, 501: ErrRefused
//	408, 429, expired keys, a skewed clock, 5xx, no answer: ErrUnknown
//
// A 404 is trusted only with S3's error document: a proxy's own 404 must not make a full bucket
// look empty.
package s3

import (
	"bytes"
	"context"
	"crypto/md5" // Content-MD5 is the integrity check of S3
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/retry"
)

const (
	// pageSize is the maximum of S3.
	pageSize = 1000

	// Reads are tried up to readAttempts times, with exponential back-off.
	readAttempts = 3
	readPause    = 100 * time.Millisecond
)

// Store implements object.Store.
type Store struct {
	client     minio.Core
	bucket     string
	timeout    time.Duration
	keys       *awsclient.Keeper  // of the signing keys; nil: they are static
	encryption encrypt.ServerSide // of writes; nil: the bucket's default

	// To make a client for one listing.
	endpoint string
	options  minio.Options
	pin      func(*minio.Client, string)
}

var _ object.Store = (*Store)(nil)

// New validates the config and returns the bucket's store. It sends nothing.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("open S3 bucket: %w", err)
	}
	endpoint, options, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket: %w", err)
	}
	keys, err := cfg.keys()
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket: %w", err)
	}
	options.Creds = cfg.signer(keys)
	client, err := minio.New(endpoint, options)
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket: endpoint %q: %w", cfg.Endpoint, err)
	}
	cfg.pin(client, endpoint)
	timeout := cfg.RequestTimeout
	if timeout == 0 {
		timeout = DefaultRequestTimeout
	}
	sse, err := cfg.encryption()
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket: %w", err)
	}
	return &Store{
		client: minio.Core{Client: client}, bucket: cfg.Bucket, timeout: timeout, keys: keys, encryption: sse,
		endpoint: endpoint, options: *options, pin: cfg.pin,
	}, nil
}

// Get implements object.Store.
func (s *Store) Get(ctx context.Context, key string) (object.Object, error) {
	if err := object.CheckKey(key); err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	var o object.Object
	err := s.read(ctx, func(ctx context.Context) (err error) {
		o, err = s.get(ctx, key)
		return err
	})
	if err != nil {
		return object.Object{}, fmt.Errorf("get %s: %w", key, err)
	}
	return o, nil
}

func (s *Store) get(ctx context.Context, key string) (object.Object, error) {
	if err := s.ready(ctx); err != nil {
		return object.Object{}, err
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return object.Object{}, s.explain(err, object.ErrNotFound)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		return object.Object{}, fmt.Errorf("%w: read the body: %w", object.ErrUnknown, err)
	}
	if err := checkETag(info.ETag); err != nil {
		return object.Object{}, err
	}
	info.Key = key
	return object.Object{Info: infoOf(info, int64(len(data))), Body: data}, nil
}

// Put implements object.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	if err := object.CheckKey(key); err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	if pre.Conditional() && !pre.Absent() && !sendable(pre.Match()) {
		return "", fmt.Errorf("put %s: %w: no object has the etag %q", key, object.ErrConflict, pre.Match())
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("put %s: %w: %w", key, object.ErrUnknown, err)
	}
	etag, err := s.put(ctx, key, body, pre)
	if err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	return etag, nil
}

func (s *Store) put(ctx context.Context, key string, body []byte, pre object.Precondition) (object.ETag, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		return "", err
	}
	opts := minio.PutObjectOptions{ServerSideEncryption: s.encryption}
	absent := object.ErrUnknown // the meaning of a 404
	switch {
	case pre.Absent():
		opts.SetMatchETagExcept("*")
	case pre.Conditional():
		opts.SetMatchETag(string(pre.Match()))
		absent = object.ErrConflict
	}
	sum, digest := md5.Sum(body), sha256.Sum256(body)
	opts.DisableContentSha256 = true // no chunked signature: the digest of the whole body is signed
	// A reader that can't seek can't be sent twice, whatever the client does.
	info, err := s.client.PutObject(ctx, s.bucket, key, io.MultiReader(bytes.NewReader(body)), int64(len(body)),
		base64.StdEncoding.EncodeToString(sum[:]), hex.EncodeToString(digest[:]), opts)
	switch {
	case err != nil && pre.Conditional():
		return "", s.explainPut(err, absent)
	case err != nil:
		return "", s.explainWrite(err, absent)
	}
	return object.ETag(info.ETag), checkETag(info.ETag)
}

// checkETag returns an error unless If-Match can use this etag. It can't use a weak one (RFC
// 9110, section 13.1.1): a proxy that compresses weakens etags.
func checkETag(etag string) error {
	lack := &object.Lack{Kind: object.ErrUnfit, What: "an object has no ETag"}
	switch {
	case sendable(object.ETag(etag)):
		return nil
	case strings.HasPrefix(etag, "W/"):
		lack.What, lack.Detail = "ETags are weak", fmt.Sprintf("%.80q; does a proxy change them?", etag)
	case etag != "":
		lack.What, lack.Detail = "an ETag can't be used in If-Match", fmt.Sprintf("%.80q", etag)
	}
	return fmt.Errorf("%w: %w", object.ErrUnknown, lack)
}

// sendable reports whether an If-Match header can select this etag alone; no store returns any
// other ("*" would match every object).
func sendable(e object.ETag) bool {
	return e != "" && e != "*" && !strings.ContainsFunc(string(e), func(r rune) bool {
		return r <= ' ' || r == '"' || r >= 0x7f
	})
}

// Delete implements object.Store. It is sent once, like a write.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := object.CheckKey(key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete %s: %w: %w", key, object.ErrUnknown, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	err := s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if err == nil {
		return nil
	}
	if err = s.explainWrite(err, object.ErrNotFound); errors.Is(err, object.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("delete %s: %w", key, err)
}

func infoOf(o minio.ObjectInfo, size int64) object.Info {
	return object.Info{Key: o.Key, ETag: object.ETag(o.ETag), Size: size, ModTime: o.LastModified}
}

// read sends a read, and retries after temporary failures.
func (s *Store) read(ctx context.Context, send func(context.Context) error) error {
	backoff := retry.Backoff{First: readPause, Limit: time.Minute}
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: %w", object.ErrUnknown, err)
		}
		once, cancel := context.WithTimeout(ctx, s.timeout)
		err := send(once)
		cancel()
		if err == nil || attempt == readAttempts || !passing(err) {
			return err
		}
		_ = retry.Wait(ctx, backoff.Delay(attempt)) // the next iteration checks ctx
	}
}

// passing reports whether a failure of the network or server may be temporary.
func passing(err error) bool {
	if !errors.Is(err, object.ErrUnknown) {
		return false
	}
	var answer *object.Answer
	if !errors.As(err, &answer) {
		return !errors.Is(err, object.ErrUnfit)
	}
	return !errors.Is(err, object.ErrRefused) && (answer.Status >= http.StatusInternalServerError ||
		answer.Status == http.StatusTooManyRequests || answer.Status == http.StatusRequestTimeout || awsclient.ExpiredCode(answer.Code))
}
