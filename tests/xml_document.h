// Strict XML for tests: what is not well-formed does not parse.
#pragma once

#include <expat.h>

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace attend {

struct XmlElement {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;  // its own characters, without those of elements inside
  std::size_t parent = 0;

  double number(const std::string& attribute) const { return std::stod(attributes.at(attribute)); }
};

// All elements in document order; [0] is the root. Throws std::runtime_error with the place of the first fault.
inline std::vector<XmlElement> parse_xml(const std::string& document) {
  struct State {
    std::vector<XmlElement> elements;
    std::vector<std::size_t> open;
  } state;
  XML_Parser parser = XML_ParserCreate("UTF-8");
  XML_SetUserData(parser, &state);
  XML_SetElementHandler(
      parser,
      [](void* data, const char* name, const char** attributes) {
        auto& s = *static_cast<State*>(data);
        XmlElement element{name, {}, {}, s.open.empty() ? 0 : s.open.back()};
        for (; *attributes; attributes += 2) element.attributes[attributes[0]] = attributes[1];
        s.open.push_back(s.elements.size());
        s.elements.push_back(std::move(element));
      },
      [](void* data, const char*) { static_cast<State*>(data)->open.pop_back(); });
  XML_SetCharacterDataHandler(parser, [](void* data, const char* text, int length) {
    auto& s = *static_cast<State*>(data);
    s.elements[s.open.back()].text.append(text, static_cast<std::size_t>(length));
  });
  const bool good = XML_Parse(parser, document.data(), static_cast<int>(document.size()), 1) == XML_STATUS_OK;
  const std::string fault = good ? ""
                                 : std::string(XML_ErrorString(XML_GetErrorCode(parser))) + " in line " +
                                       std::to_string(XML_GetCurrentLineNumber(parser));
  XML_ParserFree(parser);
  if (!good) throw std::runtime_error(fault);
  return state.elements;
}

}  // namespace attend
