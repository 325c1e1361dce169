package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// guard fails a listing whose answer is no listing. The client reads whatever XML
// it is given, and takes the login page of a proxy for an empty bucket.
type guard struct{ next http.RoundTripper }

var _ http.RoundTripper = guard{}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK || r.URL.Query().Get("list-type") == "" {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the listing: %w", err)
	}
	if err := checkListing(body); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// checkListing looks for the root element of an answer to ListObjectsV2.
func checkListing(body []byte) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return errors.New("the answer to a listing is not XML, so perhaps not from an object store")
		}
		if start, ok := token.(xml.StartElement); ok {
			if start.Name.Local != "ListBucketResult" {
				return fmt.Errorf("the answer to a listing is a <%s>, so perhaps not from an object store", start.Name.Local)
			}
			return nil
		}
	}
}
