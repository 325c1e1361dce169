package sigv4

import (
	"bytes"
	"crypto/hmac"
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// Values of SumHeader other than a hash.
const (
	// Unsigned means that the body is not signed.
	Unsigned = "UNSIGNED-PAYLOAD"
	// Chunked means that the body consists of chunks signed one by one.
	Chunked = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
)

const chunkAlgorithm = algorithm + "-PAYLOAD"

// chunkHead matches the line before a chunk: its length in hexadecimal and its signature.
var chunkHead = regexp.MustCompile(`^([0-9a-fA-F]{1,8});chunk-signature=([0-9a-f]{64})$`)

var errChunks = errors.New("the body is not in signed chunks")

// Chunks verifies a body of signed chunks with the secret key and returns its content. The
// request must have passed Check.
func (s Signature) Chunks(body []byte, secret string) ([]byte, error) {
	var whole []byte
	previous := s.text
	for {
		head, rest, ok := bytes.Cut(body, []byte("\r\n"))
		m := chunkHead.FindSubmatch(head)
		if !ok || m == nil {
			return nil, errChunks
		}
		length, err := strconv.ParseInt(string(m[1]), 16, 64)
		if err != nil || length > int64(len(rest)) {
			return nil, fmt.Errorf("%w: a chunk of length %s has %d bytes", errChunks, m[1], len(rest))
		}
		chunk, after := rest[:length], rest[length:]
		previous = s.sign(secret, chunkAlgorithm, previous, Sum(nil), Sum(chunk))
		if !hmac.Equal([]byte(previous), m[2]) {
			return nil, errors.New("the signature of a chunk does not match")
		}
		whole = append(whole, chunk...)
		body, ok = bytes.CutPrefix(after, []byte("\r\n"))
		switch {
		case length == 0 && len(body) > 0:
			return nil, fmt.Errorf("%w: %d bytes after the last chunk", errChunks, len(body))
		case length == 0:
			return whole, nil
		case !ok:
			return nil, errChunks
		}
	}
}
