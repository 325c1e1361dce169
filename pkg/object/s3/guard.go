package s3

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/nstance/nstance/pkg/object"
)

// guard fails a listing whose response is not a listing. The client parses any XML, and takes
// the login page of a proxy for an empty bucket.
type guard struct{ next http.RoundTripper }

var _ http.RoundTripper = guard{}

// maxPage bounds one page of a listing, in bytes: the longest keys with each byte escaped as
// three, and four times as much metadata per object.
const maxPage = pageSize * 7 * object.MaxKey

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusOK || r.URL.Query().Get("list-type") == "" {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return nil, fmt.Errorf("read the listing: %w", err)
	}
	if len(body) > maxPage {
		return nil, fmt.Errorf("the page of a listing is longer than %d bytes", maxPage)
	}
	if err := checkListing(body); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// checkListing checks the root element of a response to ListObjectsV2.
func checkListing(body []byte) error {
	d := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return errors.New("the response to a listing is not XML, so it is probably not from an object store")
		}
		if start, ok := token.(xml.StartElement); ok {
			if start.Name.Local != "ListBucketResult" {
				return fmt.Errorf("the response to a listing is a <%s>, so it is probably not from an object store", start.Name.Local)
			}
			return nil
		}
	}
}
