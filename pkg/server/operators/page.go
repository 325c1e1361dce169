package operators

import (
	"fmt"

	"github.com/nstance/nstance/pkg/fleet"
)

// MaxInstancePage is how many instances one page has at most.
const MaxInstancePage = 1000

// page is the part of a list that a caller asks for: what comes after an id, so that
// pages fit together whatever comes and goes between them.
type page struct {
	limit int
	after fleet.InstanceID // empty: from the first one
}

// pageOf reads what a request says of its page. id checks an id that a field gives.
func pageOf(size int32, token string, most int, id func(field, text string) (fleet.InstanceID, error)) (p page, err error) {
	if size < 0 {
		return page{}, invalid("page_size", fmt.Sprintf("%d is not valid: want 0 to %d", size, most))
	}
	if p.limit = int(size); size == 0 || p.limit > most {
		p.limit = most
	}
	if token != "" {
		p.after, err = id("page_token", token)
	}
	return p, err
}

func instanceID(field, text string) (fleet.InstanceID, error) {
	id, err := fleet.ParseID(text)
	if err != nil {
		return "", invalid(field, err.Error())
	}
	return id, nil
}
