package awsclient

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// newMetadata calls the metadata service with client; nil: the SDK's own.
func newMetadata(client *http.Client) *imds.Client {
	o := imds.Options{}
	if client != nil {
		o.HTTPClient = client
	}
	return imds.New(o)
}

// readMetadata returns what the metadata service has at a path, and at most so many bytes
// of it.
func readMetadata(ctx context.Context, service *imds.Client, path string, most int64) (string, error) {
	out, err := service.GetMetadata(ctx, &imds.GetMetadataInput{Path: path})
	if err != nil {
		return "", err
	}
	defer out.Content.Close()
	text, err := io.ReadAll(io.LimitReader(out.Content, most))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	return string(text), nil
}
