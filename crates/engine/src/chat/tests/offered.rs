//! Which of many tools a model is told of.

use super::*;

#[test]
fn the_most_relevant_tools_are_offered_and_those_that_are_named() {
    let tools: Vec<Tool> = ["alarm", "weather", "email", "music"]
        .map(|name| Tool {
            name: name.to_owned(),
            description: String::new(),
            ..weather()
        })
        .into();
    let request = ChatRequest {
        tools,
        most_tools: Some(1),
        tool_choice: ToolChoice::Allowed {
            names: vec!["music".to_owned()],
            required: true,
        },
        ..asking(vec![message("user", "What is the weather like?")])
    };
    let chat = chat(&template("Qwen-Qwen2.5-7B-Instruct"), &request).unwrap();
    let names: Vec<&str> = chat.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["weather", "music"]);
    assert_eq!(
        request.chooses_tools_for().as_deref(),
        Some("What is the weather like?")
    );
    // A model of vectors knows better.
    let near = |near: &[f32]| ChatRequest {
        tool_nearness: Some(near.to_vec()),
        messages: vec![message("user", "Will I get wet?")],
        tool_choice: ToolChoice::Auto,
        ..request.clone()
    };
    let offered = near(&[0.1, 0.2, 0.9, 0.3]).offered().unwrap();
    assert_eq!(offered.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["email"]);
    let error = near(&[0.1]).offered().unwrap_err();
    assert!(error.to_string().contains("4 tools"), "{error}");
    let all = ChatRequest {
        most_tools: Some(4),
        ..request
    };
    assert_eq!(all.chooses_tools_for(), None);
}
