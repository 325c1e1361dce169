package awsclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// modeVariable selects the metadata service's address family: IPv4 or IPv6.
const modeVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"

// metadataIPv6 is the address of the metadata service in networks with IPv6, see
// docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html.
const metadataIPv6 = "fd00:ec2::254"

// newMetadata returns a metadata client over client; nil: one without a proxy.
func newMetadata(client *http.Client) *imds.Client { return Config{Local: client}.metadata() }

// metadata returns a metadata client. It always uses sessions: version 1, which answers any
// request that can be made to come from this machine, is never used.
func (c Config) metadata() *imds.Client {
	o := imds.Options{Endpoint: c.Metadata, EnableFallback: sdk.FalseTernary, HTTPClient: direct()}
	if strings.EqualFold(os.Getenv(modeVariable), "IPv6") {
		o.EndpointMode = imds.EndpointModeStateIPv6
	}
	if c.Local != nil {
		o.HTTPClient = c.Local
	}
	return imds.New(o)
}

// readMetadata returns at most `most` bytes of a metadata path.
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
