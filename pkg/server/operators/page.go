package operators

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/rpc"
)

// MaxInstancePage is the maximum number of instances in a page.
const MaxInstancePage = 1000

// pageOf reads a request's page_size and page_token. A page begins after an id, so that pages
// fit together whatever comes and goes between them. after is the zero value on the first
// page; parse reads an id that a field gives.
func pageOf[ID any](size int32, token string, most int, parse func(field, text string) (ID, error)) (limit int, after ID, err error) {
	if size < 0 {
		return 0, after, rpc.InvalidField("page_size", fmt.Sprintf("%d is not valid: want 0 to %d", size, most))
	}
	if limit = int(size); size == 0 || limit > most {
		limit = most
	}
	if token != "" {
		after, err = parse("page_token", token)
	}
	return limit, after, err
}

func instanceID(field, text string) (fleet.InstanceID, error) {
	id, err := fleet.ParseID(text)
	if err != nil {
		return "", rpc.InvalidField(field, err.Error())
	}
	return id, nil
}
