package httpapi

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// types are the answers of an operation by status; nil: without a body.
type types map[int]any

// operation describes one operation of the document.
type operation struct {
	id, method, path     string
	summary, description string
	answers              types
	open                 bool // it needs no token
	local                bool // it calls no shard
	conditional          bool // it has If-Match
	body                 bool
}

// statuses returns the statuses of the problems that the operation can answer.
func (o operation) statuses() []int {
	all := []int{http.StatusBadRequest, http.StatusMisdirectedRequest}
	if o.open {
		return all
	}
	all = append(all, http.StatusUnauthorized)
	if !o.local {
		all = append(all, http.StatusForbidden)
	}
	if o.conditional {
		all = append(all, http.StatusPreconditionFailed)
	}
	if o.method != http.MethodGet {
		all = append(all, http.StatusRequestEntityTooLarge)
		if o.method != http.MethodDelete {
			all = append(all, http.StatusUnsupportedMediaType)
		}
	}
	if o.body {
		all = append(all, http.StatusRequestTimeout)
	}
	if o.local {
		return all
	}
	return append(all, http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
}

// why says what a status means in this API.
func why(status int) string {
	return map[int]string{
		http.StatusOK:           "Done: all shards answered",
		http.StatusCreated:      "Created, or created earlier with the same key",
		http.StatusAccepted:     "Accepted: it is durable, and happens",
		http.StatusMultiStatus:  "Only some of the shards answered",
		http.StatusNotModified:  "No shard's config has changed",
		http.StatusBadRequest:   "Invalid: fields has every invalid field",
		http.StatusUnauthorized: "A token is required, and there was none, or an unknown one",
		http.StatusForbidden: "The token is read-only, the request comes from another web site, " +
			"or the shard does not permit this to the API's identity",
		http.StatusNotFound:              "There is no such group or instance",
		http.StatusRequestTimeout:        "The body did not arrive in time",
		http.StatusConflict:              "Not in this state, or not without a confirmation; nothing was changed",
		http.StatusPreconditionFailed:    "If-Match names another revision than the group has now",
		http.StatusRequestEntityTooLarge: "The body is larger than 1 MiB",
		http.StatusUnsupportedMediaType:  "Content-Type is not application/json",
		http.StatusMisdirectedRequest:    "The Host of the request is not one of this API's",
		http.StatusTooManyRequests:       "Over a limit of the shard",
		http.StatusInternalServerError:   "An error of the shard: its log says which",
		http.StatusBadGateway:            "The shards failed in different ways, which shards has, or a shard does not accept the API's identity",
		http.StatusServiceUnavailable:    "No leader of the shard could be reached in time",
		http.StatusGatewayTimeout:        "The shard did not answer in time",
	}[status]
}

// operation makes the operation for huma, with all of its answers.
func (a *API) operation(o operation) huma.Operation {
	registry := a.huma.OpenAPI().Components.Schemas
	op := huma.Operation{
		OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Description: o.description,
		Responses: map[string]*huma.Response{}, MaxBodyBytes: maxBody,
	}
	if o.open {
		op.Security = []map[string][]string{}
	}
	for status, body := range o.answers {
		r := &huma.Response{Description: why(status)}
		if body != nil {
			schema := registry.Schema(reflect.TypeOf(body), true, "")
			r.Content = map[string]*huma.MediaType{"application/json": {Schema: schema}}
		}
		op.Responses[strconv.Itoa(status)] = r
		if op.DefaultStatus == 0 || status < op.DefaultStatus {
			op.DefaultStatus = status // the one for which huma adds a body, if there is none
		}
	}
	for _, status := range o.statuses() {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: why(status),
			Content:     map[string]*huma.MediaType{problemType: {Schema: registry.Schema(reflect.TypeFor[Problem](), true, "")}},
		}
	}
	return op
}
